"""Reasoning that one side has and the other has not."""

from __future__ import annotations

from serving.explain.causes import MissCause
from serving.explain.detectors.finding import Finding
from serving.explain.difference import Difference
from serving.explain.place import in_think_block
from serving.explain.turn import Turn, reasoning_of


def moved_reasoning(difference: Difference) -> Finding | None:
    """One side is inside a think block where the other goes on without, or holds reasoning that was not marked."""
    if _unmarked(difference):
        return Finding(
            MissCause.REASONING_DROPPED,
            f"The server read the answer in message {len(difference.stored.messages)} as reasoning, though it has no "
            "such mark, and the request sends it back, but the template does not print it.",
        )
    char = difference.broken.character
    was, now = in_think_block(difference.stored, char), in_think_block(difference.sent, char)
    if was == now or (was and _is_empty_block(difference.stored, char)):
        return None
    index = difference.broken.sent.message_index
    if index is None:
        index = len(difference.stored.messages)
    message = difference.sent.messages[index] if index < len(difference.sent.messages) else {}
    sent_back = reasoning_of(message) is not None
    if now:
        who = "and the request now carries it" if sent_back else "and the template prints it now"
        return Finding(
            MissCause.REASONING_ECHOED, f"What is stored has no reasoning in message {index}, {who}."
        )
    if difference.in_reply:
        who = (
            "and the request sends it back, but the template does not print it"
            if sent_back
            else "and the request does not send it back"
        )
        return Finding(MissCause.REASONING_DROPPED, f"The model reasoned in message {index}, {who}.")
    if difference.appends:
        return Finding(
            MissCause.REASONING_DROPPED,
            f"The request still carries the reasoning of message {index}, and the template leaves it out since a "
            "new user message follows."
            if sent_back
            else f"The template no longer prints the think block of message {index}.",
        )
    return Finding(
        MissCause.REASONING_DROPPED, f"The reasoning of message {index} was sent before and is gone now."
    )


def _unmarked(difference: Difference) -> bool:
    """Whether all of the reply up to a mark went to a server's reasoning field, whose text is not printed again.

    A parser of a model that always reasons takes a text without marks for reasoning that goes on.
    """
    index = len(difference.stored.messages)
    if not difference.in_reply or not difference.appends or index >= len(difference.sent.messages):
        return False
    reasoning = (reasoning_of(difference.sent.messages[index]) or "").strip()
    begin = len(difference.stored.prompt_text)
    generated, printed = (side.text[begin:].lstrip() for side in (difference.stored, difference.sent))
    return bool(reasoning) and generated.startswith(reasoning) and not printed.startswith(reasoning)


def _is_empty_block(turn: Turn, char: int) -> bool:
    """A think block that the generation prompt opens and closes: nobody reasoned, the template wrote it."""
    begin = turn.text.rfind("<think>", 0, char + len("<think>"))
    end = turn.text.find("</think>", begin)
    closed = 0 <= end < len(turn.prompt_text) and begin >= turn.outline.prompt_start
    return closed or (begin >= turn.outline.prompt_start and not turn.output_ids and end < 0)
