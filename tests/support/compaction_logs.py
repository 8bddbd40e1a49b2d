"""Logs for compaction tests: a scripted piece of work with known answers, and the caller's side of a compaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from serving.assembler import (
    AssistantTurn,
    ContextItem,
    ToolCall,
    ToolResult,
    ToolStep,
    UserTurn,
    history_items,
)
from serving.assembler.compaction import (
    Compaction,
    CompactionFailure,
    CompactionPlan,
    CompactionPolicy,
    NoCompaction,
    Probe,
    ProbeKind,
    Reach,
    Strategy,
    SummaryAnswer,
    SummaryTask,
    apply_compactions,
    extractive,
    finish,
    plan_compaction,
)
from serving.assembler.compaction.survey import framed, sources_of
from serving.assembler.payloads import Summary

Summariser = Callable[[SummaryTask], SummaryAnswer]
MODEL_STRATEGIES = tuple(
    strategy for strategy in Strategy if strategy not in (Strategy.NONE, Strategy.TRUNCATE)
)
STRATEGIES = (Strategy.TRUNCATE, *MODEL_STRATEGIES)


def tokens(text: str) -> int:
    return -(-len(text) // 4)


def size(items: Sequence[ContextItem]) -> int:
    """What a prompt of these items has, roughly; a summary with its fence, as in the layout."""
    return sum(
        tokens(framed(item.id, item.payload))
        if isinstance(item.payload, Summary)
        else sum(tokens(source.text) for source in sources_of(item))
        for item in items
    )


def step(call_id: str, content: str, tool: str = "read", *, text: str = "", failed: bool = False) -> ToolStep:
    return ToolStep(
        calls=(ToolCall(id=call_id, name=tool, arguments=f'{{"of": "{call_id}"}}'),),
        results=(ToolResult(call_id=call_id, content=content, failed=failed),),
        text=text,
    )


def policy(strategy: Strategy, **more: object) -> CompactionPolicy:
    return CompactionPolicy.model_validate(
        {"strategy": strategy, "keep_last": 1, "target_tokens": 400, **more}
    )


def plan(
    history: Sequence[ContextItem],
    chosen: CompactionPolicy,
    *,
    budget: int = 8000,
    used: int = 8000,
    done: Sequence[Compaction] = (),
    failures: Sequence[CompactionFailure] = (),
) -> CompactionPlan | NoCompaction:
    return plan_compaction(
        history, chosen, count=tokens, budget=budget, used=used, done=done, failures=failures
    )


def planned(history: Sequence[ContextItem], chosen: CompactionPolicy, budget: int = 8000) -> CompactionPlan:
    made = plan(history, chosen, budget=budget)
    assert isinstance(made, CompactionPlan), made
    return made


def run(made: CompactionPlan, summariser: Summariser = extractive) -> Compaction | CompactionFailure:
    return finish(made, [summariser(task) for task in made.tasks], tokens)


def compacted(
    history: Sequence[ContextItem], chosen: CompactionPolicy, summariser: Summariser = extractive
) -> Compaction:
    result = run(planned(history, chosen), summariser)
    assert isinstance(result, Compaction), result
    return result


def says(text: str, finish_reason: str | None = "stop") -> Summariser:
    """A summariser that always gives this answer."""
    return lambda task: SummaryAnswer(text=text, model="scripted", finish_reason=finish_reason)


@dataclass(frozen=True)
class Work:
    """A log, where its tasks end, and what an agent must still know at its end."""

    history: tuple[ContextItem, ...]
    task_ends: tuple[int, ...]
    probes: tuple[Probe, ...]


def work(tasks: int = 3, noise: int = 12) -> Work:
    """An agent that repairs a service in `tasks` tasks; every task reads, decides, edits and asks."""
    turns: list[UserTurn | AssistantTurn | ToolStep] = []
    ends: list[int] = []
    probes: list[Probe] = []

    def say(turn: UserTurn | AssistantTurn | ToolStep) -> str:
        turns.append(turn)
        return f"turn-{len(turns) - 1:03d}"

    for number in range(tasks):
        path, sha = f"src/queue_{number}.py", f"{number + 7:04x}c0ffee"
        say(UserTurn(text=f"Make queue {number} survive a restart, and tell me what is left."))
        content = _noise(number, noise)
        if number == 0:
            content += "Note of the owner: files under /srv/legal-hold must never be deleted, see LH-4471.\n"
            content += "The vendor closes an account after 3 logins an hour.\n"
        say(step(f"c{number}_a", content))
        say(
            step(
                f"c{number}_b",
                _noise(number + 50, noise) + f"measured: 2 writers block for {310 + number} ms",
                "bench",
                text=f"Rejected SQLite for queue {number} because two writers lock, error E13{number:02d}.",
            )
        )
        source = say(
            step(f"c{number}_c", _noise(number + 90, noise) + f"verified: port 70{number:02d} answers")
        )
        say(step(f"c{number}_d", f"wrote {path}, sha256 {sha}", "edit"))
        say(step(f"c{number}_e", f"approval A-{number + 17} is pending: ops must sign the deploy", "ask"))
        say(AssistantTurn(text=f"Queue {number} is done. Next step: run migrate_{number}.py on db-{number}."))
        ends.append(len(turns))
        probes += [
            Probe(kind=ProbeKind.CHANGED_FILE, needles=(path, sha)),
            Probe(
                kind=ProbeKind.REJECTED_DECISION, needles=(f"SQLite for queue {number}", f"E13{number:02d}")
            ),
            Probe(kind=ProbeKind.CLAIM_SOURCE, needles=(f"port 70{number:02d}",), source=source),
            Probe(kind=ProbeKind.PENDING_APPROVAL, needles=(f"A-{number + 17}", "pending")),
        ]
    say(UserTurn(text="Now go on with the migration that is left over."))
    say(step("now", "migration list: 1 open"))
    probes += [
        Probe(kind=ProbeKind.RARE_CONSTRAINT, needles=("/srv/legal-hold", "never be deleted", "LH-4471")),
        # Nothing in its words marks it as a rule.
        Probe(kind=ProbeKind.RARE_CONSTRAINT, needles=("after 3 logins an hour",)),
        Probe(kind=ProbeKind.CURRENT_GOAL, needles=("Now go on with the migration",)),
        Probe(kind=ProbeKind.NEXT_ACTION, needles=(f"migrate_{tasks - 1}.py", f"db-{tasks - 1}")),
    ]
    return Work(history_items(turns), tuple(ends), tuple(probes))


def cycles(
    history: Sequence[ContextItem],
    ends: Sequence[int],
    chosen: CompactionPolicy,
    summariser: Summariser = extractive,
    *,
    budget: int | None = None,
) -> tuple[Compaction, ...]:
    """A compaction after every task, each one stored and sent with all later requests.

    With a budget only where the log is over the threshold, else always.
    """
    done: list[Compaction] = []
    for end in [*ends[1:], len(history)]:
        used = 8000 if budget is None else size(apply_compactions(history[:end], done))
        made = plan(history[:end], chosen, done=done, used=used, budget=budget or 8000)
        if isinstance(made, CompactionPlan) and isinstance(result := run(made, summariser), Compaction):
            done.append(result)
    return tuple(done)


def everything(strategy: Strategy, **more: object) -> CompactionPolicy:
    """A policy that covers as much as it may."""
    return policy(strategy, keep_user_turns=False, reach=Reach.RUNNING_TASK, **more)


def _noise(seed: int, lines: int) -> str:
    words = ("cache warm", "socket open", "heartbeat", "gc pause", "lease renewed", "poll", "flush")
    return "".join(
        f"2026-10-02 {(seed + line) % 24:02d}:{line % 60:02d} worker-{(seed * 7 + line) % 31} "
        f"{words[(seed + line * 3) % len(words)]} in {(seed * 13 + line * 29) % 997} us\n"
        for line in range(lines)
    )
