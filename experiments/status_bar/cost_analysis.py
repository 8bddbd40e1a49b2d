"""What the records of `status-bar-cost` say: costs by N at a price ratio, and where the cheaper mode changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from experiments.framework import Analysis, Arm, Line, LineFigure, Table, TrialRecord
from experiments.framework.analysis import Cell
from serving.assembler.break_even import BarMode, BreakEvenInputs, StatusRun, advise, simulate_status
from serving.errors import UsageError

APPEND: Final = "append"
REPLACE: Final = "replace"
NO_BAR: Final = "no-bar"

PRICE_RATIOS: Final = (0.0, 0.1, 0.25, 0.5)
"""α: price of a cached prompt token over that of a computed one; 0.1 is what many providers bill."""
SHOWN_RATIO: Final = 0.1


@dataclass(frozen=True)
class Loop:
    """One trial's calls by arm, cut into updates."""

    name: str
    every: int
    block_size: int
    calls: dict[str, list[tuple[int, int]]]
    """Arm → (prompt, cached) of every call."""

    @property
    def updates(self) -> int:
        """N of the whole trial."""
        return len(self.calls[APPEND]) // self.every

    def cost(self, arm: str, updates: int, ratio: float) -> float:
        """Cost of the first N updates, in computed tokens."""
        part = self.calls[arm][: updates * self.every]
        return sum(prompt - (1 - ratio) * cached for prompt, cached in part)

    def crossover(self, ratio: float) -> int | None:
        """The smallest N from which on replacing costs strictly less; None: it does not within this trial."""
        cheaper = [
            self.cost(REPLACE, n, ratio) < self.cost(APPEND, n, ratio) for n in range(1, self.updates + 1)
        ]
        last_dearer = max((n for n, is_cheaper in enumerate(cheaper, 1) if not is_cheaper), default=0)
        return last_dearer + 1 if last_dearer < self.updates else None

    @property
    def status_tokens(self) -> int:
        """S: what one bar adds to a prompt, framing included; the mean over the last call's bars, rounded."""
        added = self.calls[APPEND][-1][0] - self.calls[NO_BAR][-1][0]
        return round(added / self.updates)

    @property
    def tokens_between_updates(self) -> int:
        """R: what the conversation alone grows by from one update to the next, mean and rounded."""
        first, last = self.calls[NO_BAR][0][0], self.calls[NO_BAR][(self.updates - 1) * self.every][0]
        return round((last - first) / (self.updates - 1))

    @property
    def recomputed_tokens(self) -> int:
        """R_c: of those, what a call before the update has computed; in a replay no output ever is."""
        return round(self.tokens_between_updates * (self.every - 1) / self.every)

    def inputs(self, ratio: float) -> BreakEvenInputs:
        """The loop in the terms of the formulas."""
        return BreakEvenInputs(
            price_ratio=ratio,
            status_tokens=self.status_tokens,
            tokens_between_updates=self.tokens_between_updates,
            recomputed_tokens=self.recomputed_tokens,
            updates=self.updates,
            calls_per_update=self.every,
        )

    def simulated(self, ratio: float) -> int | None:
        """The crossover of a loop of these sizes played with exact reuse, blocks included."""
        run = StatusRun(
            status_tokens=self.status_tokens,
            tokens_between_updates=self.tokens_between_updates,
            output_tokens=0,
            calls_per_update=self.every,
            head_tokens=self.calls[NO_BAR][0][0],
        )
        for updates in range(1, _FAR):
            costs = [
                simulate_status(run, updates, mode, block_size=self.block_size).price(ratio)
                for mode in (BarMode.REPLACE, BarMode.APPEND)
            ]
            if costs[0] < costs[1]:
                return updates
        return None


def analyse(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Analysis:
    """The crossover by k and price ratio, measured and by formula; `UsageError` without the arms it needs."""
    loops = list(_loops(records))
    if not loops:
        raise UsageError(
            f"No trial has the arms {APPEND}, {REPLACE} and {NO_BAR} all three, which the break-even is made of."
        )
    return Analysis(
        conclusion=" ".join(_conclusion(loops)),
        tables=(_crossovers(loops), _totals(arms, records)),
        figures=tuple(_figures(loops)),
    )


def _loops(records: Sequence[TrialRecord]) -> Iterator[Loop]:
    by_spec: dict[str, dict[str, TrialRecord]] = {}
    for record in records:
        if record.scored:
            by_spec.setdefault(f"{record.spec.cluster} repeat {record.repeat}", {})[record.arm] = record
    for name, own in sorted(by_spec.items()):
        if not {APPEND, REPLACE, NO_BAR} <= own.keys():
            continue
        calls = {arm: _calls(record) for arm, record in own.items()}
        block_size = own[APPEND].measures["block_size"]
        known = {arm: pairs for arm, pairs in calls.items() if pairs is not None}
        if {APPEND, REPLACE, NO_BAR} <= known.keys() and isinstance(block_size, int):
            yield Loop(name, int(own[APPEND].task.split("-")[1]), block_size, known)


def _calls(record: TrialRecord) -> list[tuple[int, int]] | None:
    pairs = [(call.prompt_tokens, call.cached_tokens) for call in record.calls]
    known = [(prompt, cached) for prompt, cached in pairs if prompt is not None and cached is not None]
    return known if len(known) == len(pairs) else None


def _conclusion(loops: Sequence[Loop]) -> Iterator[str]:
    yield f"Cached tokens at {SHOWN_RATIO} of the price of computed ones."
    shown: set[int] = set()
    for loop in loops:
        if loop.every in shown:
            continue
        shown.add(loop.every)
        advice = advise(loop.inputs(SHOWN_RATIO), block_size=loop.block_size)
        measured = loop.crossover(SHOWN_RATIO)
        yield (
            f"A bar of {loop.status_tokens} tokens every {'call' if loop.every == 1 else f'{loop.every} calls'}, "
            f"{loop.tokens_between_updates} tokens apart: replacing becomes cheaper "
            + (f"at N = {measured}" if measured else f"not within {loop.updates} updates")
            + f" (corrected formula {_number(advice.corrected.replace_first_cheaper_at)}, as published "
            f"{_number(advice.published.replace_first_cheaper_at)})."
        )


def _number(value: float | None) -> str:
    return "never" if value is None else f"{value:g}"


def _crossovers(loops: Sequence[Loop]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for loop in loops:
        for ratio in PRICE_RATIOS:
            advice = advise(loop.inputs(ratio), block_size=loop.block_size)
            rows.append(
                (
                    loop.name,
                    loop.every,
                    ratio,
                    loop.status_tokens,
                    loop.tokens_between_updates,
                    loop.recomputed_tokens,
                    loop.crossover(ratio) or f"> {loop.updates}",
                    loop.simulated(ratio) or f"≥ {_FAR}",
                    _number(advice.corrected.replace_first_cheaper_at),
                    _number(advice.published.replace_first_cheaper_at),
                )
            )
    return Table(
        title="From which number of updates replacing is cheaper",
        columns=(
            "loop",
            "k",
            "α",
            "S",
            "R",
            "R_c",
            "measured N",
            "simulated N",
            "corrected N",
            "published N",
        ),
        rows=tuple(rows),
        note="α is the price of a cached token over that of a computed one. Simulated: the same sizes with exact reuse "
        "in whole blocks. Corrected: N* = 2(1−α)R_c/(αSk), R_c in whole blocks. Published: N* = 2(1−α)R/(αS), which "
        "charges replacing for tokens that were new anyway. Assistant texts are scripted here, so no output is in the "
        "cache; in a live loop the outputs belong to R_c.",
    )


def _totals(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for task in sorted({record.task for record in records}):
        for arm in arms:
            own = [r for r in records if r.arm == arm.name and r.task == task and r.scored]
            if not own:
                continue
            prompt, cached = _mean(own, "prompt_tokens"), _mean(own, "cached_tokens")
            share = None if prompt is None or cached is None else round(cached / prompt, 3)
            computed = None if prompt is None or cached is None else prompt - cached
            agreed = sum(c.predicted_tokens == c.cached_tokens for r in own for c in r.calls)
            calls = sum(len(r.calls) for r in own)
            rows.append((task, arm.title, prompt, computed, share, f"{agreed}/{calls}"))
    return Table(
        title="Tokens of a whole trial",
        columns=("task", "arm", "prompt tokens", "computed", "cached share", "reuse as predicted"),
        rows=tuple(rows),
        note="Means over seeds. Every trial begins cold, under a salt of its own.",
    )


def _mean(records: Sequence[TrialRecord], measure: str) -> float | None:
    values = [v for r in records if isinstance(v := r.measures[measure], int | float)]
    return round(sum(values) / len(values), 1) if len(values) == len(records) else None


def _figures(loops: Sequence[Loop]) -> Iterator[LineFigure]:
    shown: set[int] = set()
    for loop in loops:
        if loop.every in shown or loop.updates < 2:
            continue
        shown.add(loop.every)
        numbers = range(1, loop.updates + 1)
        yield LineFigure(
            name=f"cost-every-{loop.every}",
            title=f"What the bar adds, {'one call' if loop.every == 1 else f'{loop.every} calls'} an update",
            axis="updates (N)",
            value_axis=f"added tokens, cached ones at {SHOWN_RATIO}",
            places=tuple(map(float, numbers)),
            lines=tuple(
                Line(
                    label=title,
                    values=tuple(
                        loop.cost(arm, n, SHOWN_RATIO) - loop.cost(NO_BAR, n, SHOWN_RATIO) for n in numbers
                    ),
                )
                for arm, title in ((APPEND, "append"), (REPLACE, "replace"))
            ),
            caption="Beyond the same conversation without a bar; measured, by what the server reported as cached. The "
            "lines cross where the cheaper mode changes.",
        )
        yield _crossover_figure(loop)


def _crossover_figure(loop: Loop) -> LineFigure:
    """Replace − append by N: measured, and as both formulas have it; each line changes sign at its crossover."""
    numbers = range(1, loop.updates + 1)
    measured = tuple(loop.cost(REPLACE, n, SHOWN_RATIO) - loop.cost(APPEND, n, SHOWN_RATIO) for n in numbers)
    verdicts = [
        advise(loop.inputs(SHOWN_RATIO).model_copy(update={"updates": n}), block_size=loop.block_size)
        for n in numbers
    ]
    corrected, published = (
        tuple(one.replace_cost - one.append_cost for one in side)
        for side in ([v.corrected for v in verdicts], [v.published for v in verdicts])
    )
    found = loop.crossover(SHOWN_RATIO)
    last = verdicts[-1]
    pace = "one call" if loop.every == 1 else f"{loop.every} calls"
    return LineFigure(
        name=f"crossover-every-{loop.every}",
        title=f"From which N replacing is cheaper, {pace} an update",
        axis="updates (N)",
        value_axis=f"replace − append, tokens, cached ones at {SHOWN_RATIO}",
        places=tuple(map(float, numbers)),
        lines=(
            Line(label="measured", values=measured),
            Line(label="corrected formula", values=corrected),
            Line(label="published formula", values=published),
        ),
        even=0.0,
        caption="Below the thin line replacing is the cheaper way. It is from N = "
        f"{found if found else f'none of {loop.updates}'} on as measured, from "
        f"{_number(last.corrected.replace_first_cheaper_at)} by the corrected formula and from "
        f"{_number(last.published.replace_first_cheaper_at)} as published; S = {loop.status_tokens}, "
        f"R = {loop.tokens_between_updates}, R_c = {loop.recomputed_tokens} tokens, blocks of {loop.block_size}.",
    )


_FAR: Final = 40
"""Where the simulated crossover is given up."""
