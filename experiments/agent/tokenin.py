"""The token-in surface for a loop: every prompt is the last one, the ids it was answered with, and what is new.

A chat server renders the whole conversation anew for every call, and what the model wrote may come back in
other tokens. Here the ids themselves are sent, so nothing that was generated is ever tokenised again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from serving.assembler import (
    FRAMING,
    AddedToken,
    AssemblyRequest,
    Carrier,
    ContextPolicy,
    Fault,
    HandOff,
    Message,
    Packet,
    PacketSpan,
    Rendered,
    RendererIdentity,
    TokenSpan,
    ToolSpec,
    item_of,
)
from serving.call import Caller, DecodeOptions, MeasuredCall, StartedCall
from serving.chat import ChatRenderer, ChatTokenizer
from serving.client import Client, Exchange, StreamEvent, Surface
from serving.models import ModelFolder
from serving.prefix import Prediction


@dataclass(frozen=True, slots=True)
class _Kept:
    """A prompt that was answered."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    rendered: Rendered
    ends: int
    """Messages that the template closed in it."""
    output_ids: tuple[int, ...]
    output_text: str
    output_offsets: tuple[int, ...]


class ExtendingRenderer:
    """A `Renderer` that puts the ids of an answer where the template would write the answer anew.

    A conversation that goes on from none of the kept ones (its head or history was changed, a secret was cut
    from the answer), or whose template closes no message with the model's end token, is rendered whole. Not
    pure: what it gives depends on the answers it was told of, so its identity is not that of the renderer
    inside.
    """

    def __init__(self, renderer: ChatRenderer) -> None:
        self._renderer = renderer
        self._kept: list[_Kept] = []
        name = renderer.tokenizer.named_tokens().get("eos_token", "")
        self._end = renderer.tokenizer.added_tokens().get(name)
        dialect = f"{renderer.identity.dialect}+answers-kept"
        self.identity: RendererIdentity = renderer.identity.model_copy(update={"dialect": dialect})
        self.added_tokens: tuple[AddedToken, ...] = renderer.added_tokens

    @property
    def carrier(self) -> Carrier:
        return self._renderer.carrier

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], spans: Sequence[PacketSpan] = ()
    ) -> Rendered:
        whole = self._renderer.render(messages, tools, spans)
        kept = self._longest_kept(tuple(messages), tuple(tools))
        if kept is None:
            return whole
        closed = self._nth_end(whole.token_ids, kept.ends)
        return whole if closed is None else self._joined(kept, whole, closed, _owner(spans, kept))

    def keep(self, packet: Packet, rendered: Rendered, output_ids: tuple[int, ...]) -> None:
        """Remember an answer, its end token included if the model wrote one."""
        tokenizer = self._renderer.tokenizer
        whole = self._renderer.render(packet.messages, packet.tools)
        self._kept.append(
            _Kept(
                messages=packet.messages,
                tools=packet.tools,
                rendered=rendered,
                ends=whole.token_ids.count(self._end) if self._end is not None else 0,
                output_ids=output_ids,
                output_text=tokenizer.decode(output_ids),
                output_offsets=tuple(len(tokenizer.decode(output_ids[:n])) for n in range(len(output_ids))),
            )
        )

    def _longest_kept(self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...]) -> _Kept | None:
        if self._end is None:
            return None
        return max(
            (
                kept
                for kept in self._kept
                if len(kept.messages) < len(messages)
                and _is_said(messages[len(kept.messages)], kept.output_text)
                and messages[: len(kept.messages)] == kept.messages
                and tools == kept.tools
            ),
            key=lambda kept: len(kept.messages),
            default=None,
        )

    def _nth_end(self, ids: tuple[int, ...], number: int) -> int | None:
        """Where the end token number `number` (from 0) stands: no content can hold one, for it is neutralised."""
        places = [place for place, token in enumerate(ids) if token == self._end]
        return places[number] if number < len(places) else None

    def _joined(self, kept: _Kept, whole: Rendered, closed: int, owner: str) -> Rendered:
        """The kept prompt and its answer, then the whole rendering from the end of the answer's message on."""
        before = kept.rendered
        # A message that was cut short brings no end token; the template's closes it.
        tail = closed + 1 if kept.output_ids[-1:] == (self._end,) else closed
        answered = len(before.token_ids) + len(kept.output_ids)
        text = before.text + kept.output_text
        start = whole.token_offsets[tail] if tail < len(whole.token_offsets) else len(whole.text)
        moved = answered - tail
        return Rendered(
            token_ids=(*before.token_ids, *kept.output_ids, *whole.token_ids[tail:]),
            text=text + whole.text[start:],
            spans=(
                *before.spans,
                TokenSpan(len(before.token_ids), answered, owner),
                *(
                    TokenSpan(max(span.start, tail) + moved, span.end + moved, span.item_id)
                    for span in whole.spans
                    if span.end > tail
                ),
            ),
            token_offsets=(
                *before.token_offsets,
                *(len(before.text) + offset for offset in kept.output_offsets),
                *(offset - start + len(text) for offset in whole.token_offsets[tail:]),
            ),
            coarse=whole.coarse,
        )


def _is_said(message: Message, answer: str) -> bool:
    """Whether the history still holds what was generated: a secret that was cut from it must not return as ids."""
    parts = [message.reasoning or "", message.content or ""]
    parts += [text for call in message.tool_calls for text in (call.name, call.arguments)]
    return message.role == "assistant" and all(line in answer for part in parts for line in part.splitlines())


def _owner(spans: Sequence[PacketSpan], kept: _Kept) -> str:
    """The item that the answer became."""
    here = ("messages", len(kept.messages))
    owners = (item_of(span.item_id) for span in spans if span.path[:2] == here)
    return next(owners, FRAMING)


class TokenInCaller:
    """`serving.call.Caller` on the token-in surface, over prompts that extend what was generated."""

    def __init__(
        self,
        client: Client,
        model: ModelFolder,
        *,
        block_size: int,
        num_blocks: int | None = None,
        template_kwargs: Mapping[str, JsonValue] | None = None,
        strict: bool = True,
        tokenizer: ChatTokenizer | None = None,
    ) -> None:
        """Arguments as `Caller`'s."""
        own = ChatRenderer(model.path, template_kwargs=template_kwargs, tokenizer=tokenizer)
        self._prompts = ExtendingRenderer(own)
        self._caller = Caller(
            client,
            model,
            block_size=block_size,
            num_blocks=num_blocks,
            template_kwargs=template_kwargs,
            surface=Surface.TOKEN_IN,
            strict=strict,
            tokenizer=tokenizer,
            prompts=self._prompts,
        )

    def start(
        self,
        request: AssemblyRequest,
        policy: ContextPolicy,
        decode: DecodeOptions,
        *,
        salt: str,
        faults: Sequence[Fault] = (),
    ) -> TokenInStart | HandOff:
        """As `Caller.start`."""
        started = self._caller.start(request, policy, decode, salt=salt, faults=faults)
        return started if isinstance(started, HandOff) else TokenInStart(started, self._prompts)


class TokenInStart:
    """A call on its way, whose answer is kept as ids when it is finished."""

    def __init__(self, started: StartedCall, prompts: ExtendingRenderer) -> None:
        self._started = started
        self._prompts = prompts
        self.packet: Packet = started.packet
        self.rendered: Rendered = started.rendered
        self.prediction: Prediction = started.prediction

    def __iter__(self) -> Iterator[StreamEvent]:
        return iter(self._started)

    def finish(self) -> MeasuredCall:
        """As `StartedCall.finish`."""
        call = self._started.finish()
        if call.exchange.error is None and call.exchange.output_token_ids:
            self._prompts.keep(self.packet, self.rendered, call.exchange.output_token_ids)
        return call

    def cancel(self) -> Exchange:
        """As `StartedCall.cancel`."""
        return self._started.cancel()
