"""A model that follows a script: exchanges made by hand, given out call by call, requests kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from experiments.agent.events import UnmeasuredCall
from serving.assembler import FixedCounter, HandOff, Packet, RequestContext, assemble
from serving.client import (
    ErrorKind,
    Exchange,
    ExchangeError,
    ReceivedToolCall,
    StreamEvent,
    Surface,
    TextDelta,
    Timings,
)

CONTEXT = RequestContext(tenant="t", actor="a", now=datetime(2026, 1, 1, tzinfo=UTC))


def received(
    name: str | None, arguments: str, call_id: str | None = "call-a", index: int = 0
) -> ReceivedToolCall:
    return ReceivedToolCall(
        index=index, id=call_id, name=name, arguments=arguments, first_ns=1, closed_ns=None
    )


def exchange(
    text: str = "", *calls: ReceivedToolCall, reasoning: str = "", error: ErrorKind | None = None
) -> Exchange:
    timings = Timings(
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        sent_ns=0,
        connect_ns=0,
        first_byte_ns=1,
        first_token_ns=1,
        last_token_ns=2,
        done_ns=3,
        arrivals=(),
    )
    return Exchange(
        surface=Surface.CHAT,
        request={},
        prompt_token_ids=None,
        output_token_ids=None,
        text=text,
        reasoning=reasoning,
        tool_calls=calls,
        finish_reason="tool_calls" if calls else "stop",
        usage=None,
        metrics=None,
        timings=timings,
        error=None if error is None else ExchangeError(kind=error, sentence="The stub broke the call"),
    )


@dataclass
class ScriptedStart:
    packet: Packet
    reply: Exchange
    events: Iterable[StreamEvent] | None = None
    """What the stream gives; None: the text at once."""
    cancelled: bool = False
    rendered: None = None
    prediction: None = None

    def __iter__(self) -> Iterator[StreamEvent]:
        if self.events is not None:
            yield from self.events
        elif self.reply.text:
            yield TextDelta(1, self.reply.text, None)

    def finish(self) -> UnmeasuredCall:
        return UnmeasuredCall(self.packet, self.reply)

    def cancel(self) -> Exchange:
        self.cancelled = True
        return self.reply


@dataclass
class ScriptedCaller:
    """Gives out `replies` one after another; `started` keeps every call with its packet."""

    replies: Sequence[Exchange]
    started: list[ScriptedStart] = field(default_factory=list)
    streams: Mapping[int, Iterable[StreamEvent]] = field(default_factory=dict)
    """By number of the call, where a test is about the stream."""

    def start(self, request, policy, decode, *, salt, faults=()) -> ScriptedStart | HandOff:
        packet = assemble(request, policy, FixedCounter(), faults)
        if isinstance(packet, HandOff):
            return packet
        number = len(self.started)
        self.started.append(ScriptedStart(packet, self.replies[number], self.streams.get(number)))
        return self.started[-1]
