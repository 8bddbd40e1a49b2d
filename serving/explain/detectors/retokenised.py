"""The same text in other tokens: generated ids are not what the tokenizer makes of their text."""

from __future__ import annotations

from serving.explain.causes import MissCause
from serving.explain.detectors.finding import Finding, quoted
from serving.explain.difference import Difference
from serving.explain.turn import Turn

_MOST_TOKENS = 16


def retokenised(difference: Difference) -> Finding | None:
    """The ids part although the text goes on alike, at least into the next word.

    A word that changes at its end is cut anew from its beginning, so the texts must agree past a white space
    – or to the end of what is stored – before the cut itself is to blame.
    """
    stored, sent, broken = difference.stored, difference.sent, difference.broken
    position = broken.position
    first = max(len(stored.decode(position, position + 1)), len(sent.decode(position, position + 1)))
    ends = broken.character >= stored.stored_characters
    between = sent.text[broken.start + first : broken.character]
    if not ends and not any(char.isspace() for char in between):
        return None
    was, now = _tokens(stored, sent, position)
    side = (
        "the model generated"
        if difference.in_reply or position >= len(stored.prompt_ids)
        else "were stored as"
    )
    return Finding(
        MissCause.RETOKENISED,
        f"The same text in other tokens from token {position} on: {side} {was}, and it was sent as {now}.",
    )


def _tokens(stored: Turn, sent: Turn, position: int) -> tuple[str, str]:
    """The tokens from the first difference up to where both end at the same character again."""
    a = b = 1
    while a + b < _MOST_TOKENS:
        was, now = len(stored.decode(position, position + a)), len(sent.decode(position, position + b))
        if was == now:
            break
        if was < now and position + a < len(stored.ids):
            a += 1
        elif now < was and position + b < len(sent.ids):
            b += 1
        else:
            break
    return _shown(stored, position, a), _shown(sent, position, b)


def _shown(turn: Turn, position: int, count: int) -> str:
    places = range(position, min(position + count, len(turn.ids)))
    return " + ".join(f"{quoted(turn.decode(place, place + 1))} ({turn.ids[place]})" for place in places)
