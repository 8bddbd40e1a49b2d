"""Where a prompt leaves what was stored: the token, the message, the item, and both texts."""

from __future__ import annotations

from dataclasses import dataclass

from serving.assembler import FRAMING, Message, PacketSpan, Rendered, Renderer, ToolSpec

_QUOTED_TOKENS = 12


@dataclass(frozen=True, slots=True)
class FirstBreak:
    """The first token of a prompt that an earlier one does not have, and where it comes from."""

    position: int
    """Index of the first differing token in both prompts."""
    message_index: int | None
    """None where the template wrote the token outside every message: framing or the tool list."""
    role: str | None
    item_id: str
    """The assembler's item, or `framing`."""
    stored_ids: tuple[int, ...]
    sent_ids: tuple[int, ...]
    stored_text: str
    sent_text: str

    def words(self) -> str:
        """`message 3 (user), item turn-002`."""
        if self.message_index is not None:
            place = f"message {self.message_index} ({self.role})"
        elif self.item_id.startswith("tool:"):
            place = "the tool list"
        else:
            place = "the template's framing"
        return place if self.item_id == FRAMING else f"{place}, item {self.item_id}"


def first_break(
    renderer: Renderer,
    messages: tuple[Message, ...],
    tools: tuple[ToolSpec, ...],
    *,
    sent: Rendered,
    stored: Rendered,
    position: int,
) -> FirstBreak:
    """Name what stands at token `position` of `sent`, the first that differs from `stored`.

    `messages` and `tools` are those of `sent`. The message is found by rendering once more with one span a
    message, never by searching text. A token that two messages share counts for the one of its first byte.
    """
    by_message = renderer.render(messages, tools, message_spans(messages))
    owner = _owner(by_message, position)
    index = None if owner == FRAMING else int(owner.removeprefix(_MESSAGE))
    item = _owner(sent, position)
    return FirstBreak(
        position=position,
        message_index=index,
        role=None if index is None else messages[index].role,
        item_id=item,
        stored_ids=stored.token_ids[position : position + _QUOTED_TOKENS],
        sent_ids=sent.token_ids[position : position + _QUOTED_TOKENS],
        stored_text=_text(stored, position),
        sent_text=_text(sent, position),
    )


_MESSAGE = "message-"


def message_spans(messages: tuple[Message, ...]) -> tuple[PacketSpan, ...]:
    """One span a message, over all its leaves."""
    return tuple(
        PacketSpan(path=("messages", index), item_id=f"{_MESSAGE}{index}") for index in range(len(messages))
    )


def _owner(rendered: Rendered, position: int) -> str:
    for span in rendered.spans:
        if span.start <= position < span.end:
            return span.item_id
    return FRAMING


def _text(rendered: Rendered, position: int) -> str:
    offsets = (*rendered.token_offsets, len(rendered.text))
    last = min(position + _QUOTED_TOKENS, len(rendered.token_ids))
    return rendered.text[offsets[position] : offsets[last]]
