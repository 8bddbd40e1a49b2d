"""A study without a server: its numbers follow from the factors, and it writes down every attempt it sees."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import JsonValue

from experiments.framework.analysis import Analysis, Table
from experiments.framework.arms import Arm
from experiments.framework.figures import Bar, BarFigure, Stack, StackedFigure
from experiments.framework.study import Served, Size, Study, TrialContext
from experiments.framework.trials import CallRecord, TrialOutcome, TrialRecord, TrialSpec

TINY = Size(name="tiny", tasks=1, seeds=2)
SMALL = Size(name="small", tasks=2, seeds=3, repeats=2)
BASE: dict[str, JsonValue] = {
    "engine.block_size": 16,
    "fault.clock": None,
    "harness.rebuild": False,
    "policy.layout": "append",
}
ARMS = (
    Arm(name="append", title="Append-only", why="The prefix is kept.", factors={}),
    Arm(name="null", title="Rebuilt", why="The same bytes again.", factors={"harness.rebuild": True}),
    Arm(name="clock", title="Clock at the head", why="Breaks every turn.", factors={"fault.clock": "head"}),
    Arm(name="block-32", title="Larger blocks", why="Rounds more away.", factors={"engine.block_size": 32}),
)
Hook = Callable[[TrialSpec, TrialContext[Path]], None]


class Toy(Study[Path]):
    """Cached share by the rule of whole blocks; `hook` may raise in the place of the machinery."""

    name = "toy"
    title = "Toy"
    question = "Does the clock break the prefix?"
    base = BASE
    declared = frozenset({"engine.block_size", "fault.clock", "harness.rebuild"})
    arms = ARMS
    null_arm = "null"
    sizes = (TINY, SMALL)

    def __init__(self, ledger: Path, *, hook: Hook | None = None, pause_s: float = 0.0) -> None:
        self._ledger, self._hook, self._pause_s = ledger, hook, pause_s

    def run_trial(self, spec: TrialSpec, context: TrialContext[Path]) -> TrialOutcome:
        note(self._ledger, context.salt)
        time.sleep(self._pause_s)
        if self._hook is not None:
            self._hook(spec, context)
        block = context.factors["engine.block_size"]
        assert isinstance(block, int)
        prompt = 400 + 10 * spec.seed
        cached = 0 if context.factors["fault.clock"] else (prompt - 1) // block * block
        call = CallRecord(
            prompt_tokens=prompt,
            cached_tokens=cached,
            predicted_tokens=cached,
            causes={"divergence": prompt - cached} if cached == 0 else {"block_rounding": prompt - cached},
        )
        return TrialOutcome(calls=(call,), measures={"cached_share": cached / prompt})

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        means = {arm.name: _mean([r for r in records if r.arm == arm.name]) for arm in self.arms}
        return Analysis(
            conclusion=f"With the clock {means['clock']} of the prompt is cached, without {means['append']}.",
            tables=(Table(title="Shares", columns=("arm", "share"), rows=tuple(means.items())),),
            figures=(
                BarFigure(
                    name="shares",
                    title="Cached share",
                    axis="cached / prompt tokens",
                    bars=tuple(Bar(label=name, value=value) for name, value in means.items()),
                ),
                StackedFigure(
                    name="causes",
                    title="Uncached tokens by cause",
                    axis="tokens",
                    parts=("divergence", "block_rounding"),
                    stacks=tuple(Stack(label=name, values=(3.0, 4.0)) for name in means),
                ),
            ),
        )


class Starter:
    """Counts engine starts and stops; one folder path is the whole engine."""

    def __init__(self, facts: Mapping[str, JsonValue] | None = None) -> None:
        self.started: list[Mapping[str, JsonValue]] = []
        self.running = 0
        self.facts = dict(facts or {"engine": "toy 1"})

    @contextmanager
    def __call__(self, engine: Mapping[str, JsonValue]) -> Iterator[Served[Path]]:
        self.started.append(dict(engine))
        self.running += 1
        try:
            yield Served(target=Path("nowhere"), environment=self.facts)
        finally:
            self.running -= 1


def note(ledger: Path, line: str) -> None:
    """Add a line that survives a kill of this process: the kernel has it when this returns."""
    with ledger.open("ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def _mean(records: Sequence[TrialRecord]) -> float | None:
    shares = [share for r in records if isinstance(share := r.measures["cached_share"], float)]
    return sum(shares) / len(shares) if shares else None
