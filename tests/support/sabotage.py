"""One run with everything a fault may touch, call by call under any faults."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from experiments.faults import FaultContext, build_faults
from serving.assembler import (
    AssemblyRequest,
    AssistantTurn,
    ContextPolicy,
    Draft,
    FixedCounter,
    Invariant,
    Packet,
    Renderer,
    RequestContext,
    ToolCall,
    ToolResult,
    ToolSpec,
    ToolStep,
    Trajectory,
    Turn,
    UserTurn,
    assemble,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(hours=9)
"""From call to call, so that most calls see another day."""


def _tool(name: str, description: str, *arguments: str) -> ToolSpec:
    properties = {argument: {"type": "string"} for argument in arguments}
    return ToolSpec(
        name=name, description=description, parameters={"type": "object", "properties": properties}
    )


def _step(number: int, *calls: tuple[str, dict[str, str]], says: str = "") -> ToolStep:
    made = tuple(
        ToolCall(id=f"c{number}{place}", name=name, arguments=json.dumps(arguments))
        for place, (name, arguments) in enumerate(calls)
    )
    results = tuple(ToolResult(call_id=call.id, content=f"{call.name} found {number} lines") for call in made)
    return ToolStep(calls=made, results=results, text=says, reasoning=f"Thought {number}: look further.")


TURNS: tuple[Turn, ...] = (
    UserTurn(text="Berth 7 was given away twice. Find out why."),
    _step(0, ("read_file", {"path": "README.md"}), says="I read the overview."),
    _step(1, ("search_text", {"pattern": "berth 7", "path": "logs"}), ("list_folder", {"path": "logs"})),
    _step(2, ("search_text", {"pattern": "hold", "path": "config"}), says="How long is a hold?"),
    AssistantTurn(text="The hold ran out after 30 minutes.", reasoning="Thought 3: that is the reason."),
    UserTurn(text="And could an invoice be sent twice?"),
    _step(4, ("search_text", {"pattern": "invoice", "path": "logs"}), says="I look into the logs."),
    _step(5, ("count_words", {"path": "logs/billing.log"})),
)

RUN = Trajectory(
    system="You look into files with your tools, one step at a time.",
    tools=(
        _tool("ask_weather", "Tell the weather at the quay.", "place"),
        _tool("book_boat", "Order a boat for a colleague.", "name", "day"),
        _tool("count_words", "Count the words of a file.", "path"),
        _tool("list_folder", "List what a folder holds.", "path"),
        _tool("read_file", "Read a file to its end.", "path"),
        _tool("search_text", "Find a pattern in the text of files.", "pattern", "path"),
    ),
    turns=TURNS,
)

CALLS = RUN.calls
"""Seven."""


@dataclass
class Recorder:
    """A fault that changes nothing and keeps the draft it was given."""

    name: str = "recorder"
    breaks: frozenset[Invariant] = frozenset()
    seen: list[Draft] = field(default_factory=list)

    def apply(self, draft: Draft) -> Draft:
        self.seen.append(draft)
        return draft


def request(call: int, run: Trajectory = RUN, window: int = 100_000) -> AssemblyRequest:
    """What call number `call` asks for."""
    context = RequestContext(tenant="t", actor="a", now=BEGIN + call * STEP)
    return run.request(call, context=context, window=window, max_output=1)


def fault_context(call: int, seed: int = 0) -> FaultContext:
    """What a fault may know of call number `call`."""
    times = tuple(BEGIN + earlier * STEP for earlier in range(call))
    return FaultContext(call, BEGIN + call * STEP, seed, times=times)


@dataclass(frozen=True)
class Sent:
    """One call: the packet, and its draft."""

    packet: Packet
    draft: Draft


def sent(
    call: int,
    *names: str,
    seed: int = 0,
    policy: ContextPolicy | None = None,
    renderer: Renderer | None = None,
    run: Trajectory = RUN,
) -> Sent:
    """Call number `call` of the run under the named faults."""
    recorder = Recorder()
    faults = (*build_faults(names, fault_context(call, seed)), recorder)
    packet = assemble(request(call, run), policy or ContextPolicy(), renderer or FixedCounter(), faults)
    assert isinstance(packet, Packet)
    return Sent(packet, recorder.seen[-1])
