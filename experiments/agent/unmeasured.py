"""Calls to a model whose template is not known here: assembled by estimate, sent, and not predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.agent.events import UnmeasuredCall
from serving.assembler import (
    AssemblyRequest,
    ContextPolicy,
    Fault,
    FixedCounter,
    HandOff,
    Packet,
    assemble,
)
from serving.call import DecodeOptions
from serving.client import ChatRequest, Client, Exchange, ExchangeStream, StreamEvent
from serving.errors import UsageError

_FRAMING_PER_MESSAGE = 5
"""What templates typically write around a message, in tokens; counts here are estimates anyway."""


class UnmeasuredCaller:
    """`serving.call.Caller` for a server that is only known by its URL.

    Only fields of OpenAI's API are sent, so neither token ids nor a cache salt: some servers refuse others.
    """

    def __init__(self, client: Client, model: str) -> None:
        self._client = client
        self._model = model
        self._counter = FixedCounter(framing_per_message=_FRAMING_PER_MESSAGE)

    def start(
        self,
        request: AssemblyRequest,
        policy: ContextPolicy,
        decode: DecodeOptions,
        *,
        salt: str,
        faults: Sequence[Fault] = (),
    ) -> UnmeasuredStart | HandOff:
        """Assemble and send; a `HandOff` when the packet does not fit by estimate. `salt` is not sent.

        Raises `UsageError` for decode options that are vLLM's own: without them the model would answer freely.
        """
        if decode.choices or decode.strict_arguments:
            raise UsageError(
                "Expected decode options of OpenAI's API, got choices or strict arguments, which only vLLM can hold a "
                "model to: name the served model's files, or leave them out."
            )
        packet = assemble(request, policy, self._counter, faults)
        if isinstance(packet, HandOff):
            return packet
        body = ChatRequest(
            model=self._model,
            messages=tuple(message.to_api() for message in packet.messages),
            tools=tuple(tool.to_api() for tool in packet.tools),
            tool_choice=decode.tool_choice if packet.tools else None,
            parallel_tool_calls=decode.parallel_tool_calls if packet.tools else None,
            max_tokens=decode.max_tokens,
            temperature=decode.temperature,
            seed=decode.seed,
            return_token_ids=False,
            measured=False,
        )
        return UnmeasuredStart(packet, self._client.stream(body, manifest_id=packet.manifest.manifest_id))


class UnmeasuredStart:
    """A call on its way, as `serving.call.StartedCall` without what needs a template."""

    rendered: None = None
    prediction: None = None

    def __init__(self, packet: Packet, stream: ExchangeStream) -> None:
        self.packet = packet
        self._stream = stream

    def __iter__(self) -> Iterator[StreamEvent]:
        return iter(self._stream)

    def finish(self) -> UnmeasuredCall:
        """Read what is left of the stream and return the call."""
        for _ in self._stream:
            pass
        return UnmeasuredCall(self.packet, self._stream.exchange)

    def cancel(self) -> Exchange:
        """Stop the call and keep what arrived."""
        self._stream.close()
        return self._stream.exchange
