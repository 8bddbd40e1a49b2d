"""Whole messages that went or came: taken from the end, cut from the head, or put before others."""

from __future__ import annotations

from collections.abc import Sequence

from serving.explain.alignment import Edit
from serving.explain.causes import MissCause
from serving.explain.detectors.finding import Finding, quoted
from serving.explain.detectors.volatile import steady_line
from serving.explain.difference import Difference, text_of
from serving.explain.turn import JsonObject

_HEAD = ("system", "developer")
_SAID = "assistant"


def whole_messages(difference: Difference) -> Finding | None:
    """Messages went or came where the tokens part, so its two sides are different messages.

    Asked before every detector that takes them for one message with another text: in a window that slides, two
    questions that differ in a number meet at the same place, and no number changed.
    """
    return moved(difference) if difference.at_edit else None


def moved(difference: Difference) -> Finding | None:
    """The same without regard to where the tokens part."""
    edit = difference.edit
    if edit is None:
        return None
    if _closing(difference, edit):
        return _ephemeral(difference, edit)
    if edit.removes:
        gone = messages(edit.stored_from, edit.stored_to)
        return Finding(
            MissCause.TRIMMED_HISTORY,
            f"{gone} of the earlier request {_are(edit)} gone, and the rest moved up.",
        )
    if edit.inserts:
        come = edit.sent_to - edit.sent_from
        return Finding(
            MissCause.EDITED_MIDDLE,
            f"{come} message{'s' if come > 1 else ''} inserted before messages that were sent already, from message "
            f"{edit.sent_from} on.",
        )
    return None


def messages(start: int, end: int) -> str:
    """`Message 3` or `Messages 3 to 5`, the end not counted."""
    return f"Message {start}" if end - start == 1 else f"Messages {start} to {end - 1}"


def _closing(difference: Difference, edit: Edit) -> bool:
    """Whether the model's turn stands where messages of the client closed the earlier request.

    A model never writes such a message, and a conversation that has begun goes on with the model's turn behind all
    that was sent: so these were taken out from before it. Where they follow unchanged they have to be the end again;
    else a turn of the model was put before them.
    """
    sent, rest = difference.sent.messages, difference.stored.messages[edit.stored_from :]
    begun = any(
        message.get("role") not in _HEAD for message in difference.stored.messages[: edit.stored_from]
    )
    client = bool(rest) and all(message.get("role") != _SAID for message in rest)
    goes_on = edit.sent_from < len(sent) and sent[edit.sent_from].get("role") == _SAID
    kept = edit.inserts and edit.sent_to + len(rest) < len(sent)
    return begun and client and goes_on and not kept


def _ephemeral(difference: Difference, edit: Edit) -> Finding:
    stored, sent = difference.stored.messages, difference.sent.messages
    end = min(len(stored) if edit.inserts or not edit.resumes else edit.stored_to, len(stored))
    last = stored[end - 1]
    gone = f"{messages(edit.stored_from, end)} of the earlier request ({quoted(text_of(last).strip())})"
    are = "is" if end - edit.stored_from == 1 else "are"
    successor = _last_of(sent, edit.sent_from, _form(last))
    stands = "" if successor is None else f", and one of that form is message {successor} now"
    return Finding(MissCause.EPHEMERAL, f"{gone} {are} not where it stood{stands}.")


def _last_of(sent: Sequence[JsonObject], start: int, form: tuple[str, str] | None) -> int | None:
    places = range(len(sent) - 1, start - 1, -1)
    return next((place for place in places if form is not None and _form(sent[place]) == form), None)


def _form(message: JsonObject) -> tuple[str, str] | None:
    """Role and first two lines, numbers and times made alike: what two status bars have in common."""
    lines = " ".join(steady_line(line) for line in text_of(message).strip().split("\n", 2)[:2])
    return (str(message.get("role")), lines) if any(char.isalpha() for char in lines) else None


def _are(edit: Edit) -> str:
    return "is" if edit.stored_to - edit.stored_from == 1 else "are"
