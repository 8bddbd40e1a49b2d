"""1,000 candidates to a packet and its manifest, beside astromesh-context and LangChain's `trim_messages`.

    make bench        # or, once it has built the environment: .venv-bench/bin/python -m benchmarks.packing

All sides get the same candidates in the same process, built before the clock starts, with token counts that
are known: no side tokenizes anything. They take turns, each round in another order, and a ratio is taken
inside a round, so that a busy machine slows both of its sides. Nothing is filtered beforehand: tenant, expiry,
supersession and what is required travel in whatever field a side has for them. The peers, which have one score
where ctxlab has five terms, get ctxlab's utility as that score.

`trim_messages` trims a conversation and ranks nothing, so it gets the candidates in rising order of utility
and what is required at the end, where it begins to keep. astromesh-context looks for near copies by comparing
texts, which has no switch; a side of its own shows its other stages without that. Redundancy is an attribute
of an item here, given by whoever retrieved it.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import version

from benchmarks.packing_candidates import Candidate, Outcome, Trap, make_candidates
from benchmarks.packing_sides import BUDGET, AstromeshSide, AstromeshStages, CtxlabSide, LangChainSide, Side


def main() -> None:
    """Print the times, then what each side kept, dropped and explained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="times that every side takes its turn")
    parser.add_argument("--seed", type=int, default=0, help="of the candidates")
    arguments = parser.parse_args()
    candidates = make_candidates(arguments.seed)
    sides: list[Side] = [
        CtxlabSide(candidates),
        AstromeshSide(candidates),
        AstromeshStages(candidates),
        LangChainSide(candidates),
    ]
    total = sum(one.tokens for one in candidates)
    print(
        f"{len(candidates):,} candidates with {total:,} tokens, a budget of {BUDGET:,}; "
        f"{', '.join(f'{name} {version(name)}' for name in ('astromesh-context', 'langchain-core'))}"
    )
    print_times(sides, arguments.rounds)
    print_outcomes(candidates, [sides[0], sides[1], sides[3]])


def print_times(sides: Sequence[Side], rounds: int) -> None:
    """Milliseconds a side, and the ratio to the first side in the same round."""
    runs: dict[str, list[float]] = {side.name: [] for side in sides}
    builds: dict[str, list[float]] = {side.name: [] for side in sides}
    for side in sides:
        side.run()
    for turn in range(rounds):
        shift = turn % len(sides)
        for side in (*sides[shift:], *sides[:shift]):
            runs[side.name].append(_milliseconds(side.run))
            builds[side.name].append(_milliseconds(side.build_items))
    print(
        f"\n{'ms, median (fastest to slowest)':32} {'choose, lay out, record':>24} {'ratio':>27} {'make items':>11}"
    )
    first = runs[sides[0].name]
    for side in sides:
        mine = runs[side.name]
        ratios = [other / own for other, own in zip(mine, first, strict=True)]
        print(
            f"{side.name:32} {_spread(mine):>24} {_spread(ratios):>27} "
            f"{statistics.median(builds[side.name]):>11.1f}"
        )
    print(f"ratio: to {sides[0].name} in the same round; {rounds} rounds, every side once in each")


def print_outcomes(candidates: Sequence[Candidate], sides: Sequence[Side]) -> None:
    """One column a side, one row a question; all cells are counted on what the sides gave."""
    by_id = {one.id: one for one in candidates}
    outcomes = [side.outcome() for side in sides]
    foreign = {one.id for one in candidates if one.trap is Trap.OTHER_TENANT}

    def row(question: str, answer: Callable[[Outcome], object]) -> None:
        print(f"{question:32} " + " ".join(f"{answer(outcome)!s:>24}" for outcome in outcomes))

    print(f"\n{'':32} " + " ".join(f"{side.name:>24}" for side in sides))
    row("kept, items", lambda outcome: len(outcome.kept))
    row("kept, tokens", lambda outcome: f"{sum(by_id[name].tokens for name in outcome.kept):,}")
    row("spent on superseded notes", lambda outcome: f"{outcome.notes:,}")
    for trap in Trap:
        count = sum(one.trap is trap for one in candidates)
        row(
            f"kept, {trap.value}",
            lambda outcome, trap=trap, count=count: (
                f"{sum(by_id[name].trap is trap for name in outcome.kept)} of {count}"
            ),
        )
    row(
        "left out with a reason",
        lambda outcome: (
            f"{len(outcome.reasons.keys() - foreign)} of {len(by_id.keys() - outcome.kept - foreign)}"
        ),
    )
    row(
        "names another tenant's items", lambda outcome: len((outcome.kept | outcome.reasons.keys()) & foreign)
    )
    print(f"{'required alone do not fit':32} " + " ".join(f"{side.too_small():>24}" for side in sides))
    print("\nreasons given")
    for side, outcome in zip(sides, outcomes, strict=True):
        counted = Counter(reason.partition(":")[0] for reason in outcome.reasons.values())
        print(f"  {side.name}: " + (", ".join(f"{why} {n}" for why, n in sorted(counted.items())) or "none"))


def _milliseconds(work: Callable[[], object]) -> float:
    gc.collect()
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


def _spread(values: Sequence[float]) -> str:
    middle, low, high = (
        f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        for value in (statistics.median(values), min(values), max(values))
    )
    return f"{middle} ({low} to {high})"


if __name__ == "__main__":
    main()
