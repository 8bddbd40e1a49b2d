"""The protocol through which the assembler counts what will be sent."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from serving.assembler.packet import Message, PacketSpan, ToolSpec

FRAMING = "framing"


class CoarseReason(StrEnum):
    """Why spans are coarser than the packet asked for."""

    LEAF_BLURRED = "leaf_blurred"
    """The template rewrote one string; where its characters went inside the result is unknown."""

    ORIGIN_LOST = "origin_lost"
    """The template mixed several strings in one operation; that text counts as framing."""

    RENDER_DIFFERS = "render_differs"
    """The render that carries origins is not the plain one; everything counts as framing."""


class TokenSpan(BaseModel):
    """Tokens [start, end) belong to an item, or to `framing`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: int
    end: int
    item_id: str


class Rendered(BaseModel):
    """One prompt as the model reads it; `spans` are sorted, disjoint and cover every token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token_ids: tuple[int, ...]
    text: str
    spans: tuple[TokenSpan, ...]
    token_offsets: tuple[int, ...]
    """Where each token's first byte lies, as a character index of `text`."""
    coarse: CoarseReason | None = None


class RendererIdentity(BaseModel):
    """Everything that decides the ids for given messages; it goes into manifests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    template_sha256: str
    tokenizer_sha256: str
    kwargs_sha256: str
    dialect: str


class Renderer(Protocol):
    """Turns messages and tools into the token ids that the server will see, with the items' spans."""

    @property
    def identity(self) -> RendererIdentity: ...

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], spans: Sequence[PacketSpan] = ()
    ) -> Rendered: ...
