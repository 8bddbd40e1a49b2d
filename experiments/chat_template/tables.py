"""The tables of the studies `chat-template` and `chat-template-cost`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from experiments.chat_template.names import DRIFT, TOOL_ROLE
from experiments.chat_template.pairs import Compared, lost_share
from experiments.framework import Arm, Table, TrialRecord
from experiments.framework.analysis import Cell
from experiments.framework.statistics import mean_of
from experiments.tool_calling.names import NATIVE_ONLY, REFUSED
from experiments.tool_calling.tables import share, summed


def of_arm(records: Sequence[TrialRecord], arm: str) -> list[TrialRecord]:
    """The records of one arm."""
    return [record for record in records if record.arm == arm]


_SHARES: Final = {
    "success": "right [95 %]",
    f"{NATIVE_ONLY}success": "right, the template's form alone [95 %]",
    "exact": "exactly the calls [95 %]",
    "right_stop": "right stop [95 %]",
    "allowed": "an allowed answer [95 %]",
}
_COUNTS: Final = {"wrong_calls": "wrong calls"}
_SAID: Final = {"gave_up": "gave up", REFUSED: "refused"}


def answers_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    """How often answers are right under each arm, by what the study measured."""
    measured = set().union(*(record.measures for record in records))
    shares, counts, said = (
        {name: title for name, title in names.items() if name in measured}
        for names in (_SHARES, _COUNTS, _SAID)
    )
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        own = of_arm(records, arm.name)
        rows.append(
            (
                arm.title,
                len(own),
                *(share(own, name) for name in shares),
                *(summed(own, name) for name in counts),
                *(sum(record.measures.get(name) is not None for record in own) for name in said),
            )
        )
    guess = sorted({value for record in records if isinstance(value := record.measures.get("choices"), int)})
    return Table(
        title="Right answers",
        columns=("arm", "prompts", *shares.values(), *counts.values(), *said.values()),
        rows=tuple(rows),
        note="Graded by code; shares with Wilson intervals."
        + "".join(f" A guess is right once in {number}." for number in guess),
    )


def compared_table(compared: Sequence[Compared], titles: dict[str, str]) -> tuple[Table, ...]:
    """Every arm against the base, tested; none where nothing is paired."""
    if not compared:
        return ()
    rows: list[tuple[Cell, ...]] = [
        (
            titles[one.arm],
            titles[one.against],
            one.right.pairs,
            one.right.only_first,
            one.right.only_second,
            one.right.change.words("+.2f"),
            one.right.p_value,
            one.adjusted,
            one.detectable,
        )
        for one in compared
    ]
    return (
        Table(
            title="Right answers against the base, prompt by prompt",
            columns=(
                "arm",
                "against",
                "prompts",
                "right only there",
                "right only here",
                "change of the share right [95 %]",
                "p (McNemar, exact)",
                "p (Holm)",
                "detectable",
            ),
            rows=tuple(rows),
            note="One pair a prompt; intervals by Newcombe; Holm over the rows. Detectable: the smallest true "
            "change that this run would have found 8 times in 10, as one of the table's rows.",
        ),
    )


def class_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    """The same by class, without tests: there are too few prompts for them."""
    kinds = list(dict.fromkeys(record.task for record in records))
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        own = of_arm(records, arm.name)
        rows.append(
            (
                arm.title,
                *(share([record for record in own if record.task == kind], "success") for kind in kinds),
            )
        )
    return Table(
        title="Right answers by class",
        columns=("arm", *(f"{kind} [95 %]" for kind in kinds)),
        rows=tuple(rows),
        note="Shares with Wilson intervals.",
    )


def tokens_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> Table:
    """What the arms cost, in the turns that happened and in the same right turn."""
    has_turns = any("later_calls" in record.measures for record in records)
    rows: list[tuple[Cell, ...]] = []
    for arm in arms:
        fixed = lost_share(records, arm.name)
        against = lost_share(records, arm.name, against=TOOL_ROLE)
        rows.append(
            (
                arm.title,
                *(_turns(arm, records) if has_turns else ()),
                None if fixed is None else fixed.words(".1f", scale=100),
                None if against is None else against.words("+.1f", scale=100),
            )
        )
    return Table(
        title="Prefix kept and tokens lost",
        columns=(
            "arm",
            *(_TURNS if has_turns else ()),
            "lost, right turn, % [95 %]",
            "against the base, points [95 %]",
        ),
        rows=tuple(rows),
        note="Lost: what an append-only run of the same lengths reuses in whole blocks, and this one does not, by ids "
        "alone. The last two columns send each prompt's right turn, the same in every arm, as shares of all its "
        "prompt tokens."
        + (" In the turns that happened, arms differ in what was said too." if has_turns else ""),
    )


_TURNS: Final = (
    "later calls",
    "extend prompt and answer",
    "extend the prompt alone",
    "extend neither",
    "tokens lost a turn [95 %]",
)


def _turns(arm: Arm, records: Sequence[TrialRecord]) -> tuple[Cell, ...]:
    """What happened in an arm's turns, column by column of `_TURNS`."""
    own = of_arm(records, arm.name)
    later, whole, prompt = (summed(own, name) for name in ("later_calls", "kept_all", "kept_prompt"))
    lost = mean_of(records, arm.name, "lost_tokens")
    return later, whole, prompt, later - whole - prompt, None if lost is None else lost.words(".0f")


def drift_table(arms: Sequence[Arm], records: Sequence[TrialRecord]) -> tuple[Table, ...]:
    """Why requests do not extend the one before and its answer; none where all do."""
    counts = {arm.name: _drifts(of_arm(records, arm.name)) for arm in arms}
    causes = sorted(set().union(*counts.values()))
    if not causes:
        return ()
    rows: list[tuple[Cell, ...]] = [
        (
            arm.title,
            summed(of_arm(records, arm.name), "later_calls"),
            *(counts[arm.name][cause] for cause in causes),
        )
        for arm in arms
    ]
    return (
        Table(
            title="Later calls that do not begin with what was stored, by cause",
            columns=("arm", "later calls", *causes),
            rows=tuple(rows),
            note="Retokenisation: the same text in other tokens than were generated. What the model wrote and the "
            "harness sent back in another form (JSON in fences as a call) counts by what the ids show.",
        ),
    )


def _drifts(records: Sequence[TrialRecord]) -> Counter[str]:
    found = Counter[str]()
    for record in records:
        for name, value in record.measures.items():
            if name.startswith(DRIFT) and isinstance(value, int):
                found[name.removeprefix(DRIFT)] += value
    return found
