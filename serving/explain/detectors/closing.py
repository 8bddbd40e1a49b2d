"""Lines at the end of the newest message that only one of both requests has."""

from __future__ import annotations

from serving.explain.causes import MissCause
from serving.explain.detectors.finding import Finding, quoted
from serving.explain.detectors.volatile import steady_line
from serving.explain.difference import Difference, text_of
from serving.explain.turn import JsonObject


def closing_lines(difference: Difference) -> Finding | None:
    """Whole lines closed a message and were taken out again, or the newest message goes on with more lines.

    A message of the model is none: what it wrote is its own. An older message that lost or won its end was edited.
    """
    change, fragment = difference.change, difference.fragment
    if change is None or fragment is None or change.field != "content" or not difference.at_edit:
        return None
    index, kept = change.message_index, change.sent[: fragment.start]
    stored = difference.stored.messages
    lines = fragment.was or fragment.now
    if (
        index >= len(stored)
        or stored[index].get("role") == "assistant"
        or (fragment.was and fragment.now)
        or fragment.start + len(fragment.was) != len(change.stored)
        or fragment.start + len(fragment.now) != len(change.sent)
        or not kept.strip()
        or not (lines.startswith("\n") or kept.endswith("\n"))
    ):
        return None
    if fragment.now:
        if index != len(stored) - 1:
            return None
        return Finding(
            MissCause.GROWN_MESSAGE,
            f"Message {index} was the last, and it goes on with {quoted(lines.strip())} where it ended before.",
        )
    if index not in (len(stored) - 1, _last_user(stored)):
        return None
    heading = steady_line(lines.strip())
    newest = len(difference.sent.messages) - 1
    again = any(
        steady_line(line) == heading for line in text_of(difference.sent.messages[newest]).split("\n")
    )
    stands = f", and one of that form ends message {newest} now" if again and newest > index else ""
    return Finding(
        MissCause.EPHEMERAL,
        f"The end of message {index} of the earlier request, {quoted(lines.strip())}, is not where it stood{stands}.",
    )


def _last_user(messages: tuple[JsonObject, ...]) -> int:
    return max((index for index, message in enumerate(messages) if message.get("role") == "user"), default=-1)
