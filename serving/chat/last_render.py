"""A renderer that is asked twice for one packet: by the assembler, and by whoever sends it."""

from __future__ import annotations

from collections.abc import Sequence

from serving.assembler.kinds import Carrier
from serving.assembler.messages import Message, PacketSpan, ToolSpec
from serving.assembler.renderer import AddedToken, Rendered, Renderer, RendererIdentity


class LastRender:
    """A renderer that remembers its last result: what `assemble` rendered last is what is sent."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self.identity: RendererIdentity = renderer.identity
        self.added_tokens: tuple[AddedToken, ...] = renderer.added_tokens
        self._asked: tuple[Sequence[Message], Sequence[ToolSpec], Sequence[PacketSpan]] | None = None
        self._answer: Rendered | None = None

    @property
    def carrier(self) -> Carrier:
        return self._renderer.carrier

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], spans: Sequence[PacketSpan] = ()
    ) -> Rendered:
        asked = (tuple(messages), tuple(tools), tuple(spans))
        if self._answer is None or asked != self._asked:
            self._answer = self._renderer.render(messages, tools, spans)
            self._asked = asked
        return self._answer
