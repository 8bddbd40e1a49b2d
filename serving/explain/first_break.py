"""Where a prompt leaves what was stored: the token, the message, the item, and both texts."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

from serving.assembler import FRAMING
from serving.explain.place import Place, locate
from serving.explain.turn import Turn
from serving.text import common_prefix

_QUOTED_TOKENS = 12
_LEAD_CHARACTERS = 40
_CONTEXT_MESSAGES = 2
"""The message that differs, and the one behind it, whose framing may be what differs."""


@dataclass(frozen=True, slots=True)
class FirstBreak:
    """The first token of a prompt that an earlier one does not have, and where it comes from."""

    position: int
    """Index of the first differing token in both prompts."""
    start: int
    """The character at which that token begins."""
    character: int
    """Index of the first differing character of both texts. It can lie behind that token's end: the same text,
    cut into other tokens."""
    sent: Place
    """Where that character stands in the request."""
    stored: Place
    """Where it stands in the earlier request, or in the reply to it."""
    lead: str
    """The last characters before `position`, the same on both sides."""
    stored_ids: tuple[int, ...]
    sent_ids: tuple[int, ...]
    stored_text: str
    sent_text: str

    @property
    def message_index(self) -> int | None:
        """None where the template wrote the character outside every message: framing or the tool list."""
        return self.sent.message_index

    @property
    def role(self) -> str | None:
        """Of that message."""
        return self.sent.role

    @property
    def item_id(self) -> str:
        """The assembler's item, or `framing`."""
        return self.sent.item_id

    def words(self) -> str:
        """`message 3 (user), item turn-002`: coarse enough to count equal places.

        Where the template goes on in the request while the earlier one still had a message's own text, that
        message ended sooner: it is the one that broke.
        """
        ended_sooner = not self.sent.path and self.stored.path and self.stored.message_index is not None
        broken = self.stored if ended_sooner else self.sent
        if broken.message_index is not None:
            place = f"message {broken.message_index} ({broken.role})"
        else:
            place = replace(self.sent, tool=None, json_path=None, offset=None).words()
        return place if self.item_id == FRAMING else f"{place}, item {self.item_id}"


def first_break(sent: Turn, stored: Turn, position: int) -> FirstBreak:
    """Name what stands at token `position` of `sent`, the first that differs from `stored`.

    Both must have a token there. The place is found from the origin of every character, never by searching
    text.
    """
    start = _start(sent, position)
    # A decoded half character is one replacement mark, so the count may be a few too high.
    character = common_prefix(stored.text, sent.text, start=max(min(start, len(sent.text)) - 4, 0))
    token = max(len(turn.decode(position, position + 1)) for turn in (stored, sent))
    # The same text in other tokens: the place is where the tokens part, not where the texts do.
    there = start if character >= start + token else character
    near = _shared_messages(sent, stored) + _CONTEXT_MESSAGES
    return FirstBreak(
        position=position,
        start=start,
        character=character,
        sent=_with_item(sent, locate(sent, there, near), there),
        stored=locate(stored, there, near),
        lead=sent.text[max(0, start - _LEAD_CHARACTERS) : start],
        stored_ids=stored.ids[position : position + _QUOTED_TOKENS],
        sent_ids=sent.ids[position : position + _QUOTED_TOKENS],
        stored_text=stored.decode(position, position + _QUOTED_TOKENS),
        sent_text=sent.decode(position, position + _QUOTED_TOKENS),
    )


def _shared_messages(sent: Turn, stored: Turn) -> int:
    pairs = zip(sent.messages, stored.messages, strict=False)
    shorter = min(len(sent.messages), len(stored.messages))
    return next((index for index, (now, was) in enumerate(pairs) if now != was), shorter)


def _start(turn: Turn, position: int) -> int:
    """The character at which a token of the prompt begins."""
    rendered = turn.rendered
    if rendered is None or rendered.token_ids != turn.prompt_ids or position >= len(rendered.token_offsets):
        return len(turn.decode(0, position))
    return rendered.token_offsets[position]


def _with_item(turn: Turn, place: Place, character: int) -> Place:
    rendered = turn.rendered
    if rendered is None or not rendered.spans:
        return place
    token = bisect_right(rendered.token_offsets, character) - 1
    owner = next((span.item_id for span in rendered.spans if span.start <= token < span.end), FRAMING)
    return replace(place, item_id=owner)
