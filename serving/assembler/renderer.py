"""How the assembler asks for token counts: the `Renderer` protocol; implementations live in other rooms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from serving.assembler.messages import FRAMING, Message, PacketSpan, ToolSpec, item_of
from serving.assembler.record import Record
from serving.assembler.reuse import Reuse
from serving.errors import LabError

__all__ = ["FRAMING", "AddedToken", "CoarseReason", "Rendered", "Renderer", "RendererIdentity", "TokenSpan"]


class CoarseReason(StrEnum):
    """Why spans are coarser than the packet asked for."""

    LEAF_BLURRED = "leaf_blurred"
    """The template rewrote one string; where its characters went inside the result is unknown."""
    ORIGIN_LOST = "origin_lost"
    """The template mixed several strings in one operation; that text counts as framing."""
    RENDER_DIFFERS = "render_differs"
    """The render that carries origins is not the plain one; everything counts as framing."""


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """Tokens [start, end) and the item they came from; `item_id` is `framing` for what no item wrote."""

    start: int
    end: int
    item_id: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """A packet as the model reads it.

    `spans` are sorted, disjoint and cover all tokens; `token_offsets` holds the character of `text` at
    which each token starts.
    """

    token_ids: tuple[int, ...]
    text: str
    spans: tuple[TokenSpan, ...]
    token_offsets: tuple[int, ...] = ()
    coarse: CoarseReason | None = None
    reuse: Reuse | None = field(default=None, compare=False)
    """No part of the result itself: equal packets give equal renderings, whatever this says."""

    def tokens_by_item(self) -> dict[str, int]:
        """Tokens of every item, its parts added up, and of `framing`; the values sum to the prompt tokens.

        Raises `LabError` where the spans leave a token out or count one twice.
        """
        tokens: dict[str, int] = {FRAMING: 0}
        reached = 0
        for span in self.spans:
            if span.start != reached or span.end < span.start:
                break
            owner = item_of(span.item_id)
            tokens[owner] = tokens.get(owner, 0) + span.end - span.start
            reached = span.end
        if reached != len(self.token_ids):
            raise LabError(
                f"The renderer's spans must cover tokens 0 to {len(self.token_ids)} without gap or overlap, "
                f"but they are contiguous only up to {reached}; this is a defect of the renderer."
            )
        return tokens


@dataclass(frozen=True, slots=True, order=True)
class AddedToken:
    """A text that the tokenizer turns into one token of its own, wherever it stands (`<|im_end|>`)."""

    text: str
    special: bool
    """Marked as control (decoding may hide it); `<tool_call>` and the like are added, but visible."""


class RendererIdentity(Record):
    """What decides a rendering beside the packet: goes into every manifest."""

    template_sha256: str
    tokenizer_sha256: str
    kwargs_sha256: str
    dialect: str


@runtime_checkable
class Renderer(Protocol):
    """Turns a packet into token ids and says which item every token came from; pure for equal inputs."""

    @property
    def identity(self) -> RendererIdentity:
        """The hashes that name this renderer."""

    @property
    def added_tokens(self) -> tuple[AddedToken, ...]:
        """The added tokens of the model, by text; empty where no tokenizer is behind the counts."""

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], spans: Sequence[PacketSpan] = ()
    ) -> Rendered:
        """Render with the generation prompt; what `spans` leaves out belongs to `framing`."""
