from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.framework import Analysis, Arm, ArmDiff, CallRecord, Table, TrialRecord
from experiments.framework.report import ReportModel, render_report
from experiments.framework.statistics import SEEDS_FOR_INTERVAL
from experiments.framework.trials import BreakExcerpt, CacheState, CacheTemperature, OutcomeKind
from experiments.prefix_cache import ARMS
from experiments.prefix_cache.analysis import analyse
from serving.explain.ttft import TtftModel


def record(
    arm: str, seed: int, *, cached: int, prompt: int = 100, ttft: float = 1.0, predicted: int | None = None
):
    call = CallRecord(
        prompt_tokens=prompt,
        cached_tokens=cached,
        predicted_tokens=cached if predicted is None else predicted,
        ttft_s=ttft,
    )
    return TrialRecord(
        study="prefix-cache",
        arm=arm,
        factors={},
        task="file-tour-1",
        seed=seed,
        repeat=0,
        order_index=0,
        attempt=1,
        salt=f"{arm}-{seed}",
        session=0,
        environment="e",
        started="",
        seconds=1.0,
        kind=OutcomeKind.OK,
        outcome="",
        cache=CacheState(temperature=CacheTemperature.COLD, proof=""),
        measures={
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "uncached_tokens": prompt - cached,
            "ttft_s": ttft,
        },
        calls=(call,),
    )


def two_arms(seeds: int, worst_cached: int = 0) -> list[TrialRecord]:
    return [
        made
        for seed in range(seeds)
        for made in (
            record("append-only", seed, cached=80, ttft=1.0 + seed / 10),
            record("clock-system-head", seed, cached=worst_cached, ttft=4.0 + seed / 5),
        )
    ]


def cell(analysis: Analysis, column: str) -> object:
    """Of the clock's line in the table of costs."""
    table = analysis.tables[0]
    return table.rows[1][table.columns.index(column)]


def conclusion(records: Sequence[TrialRecord], arms: tuple[Arm, ...] = ARMS) -> str:
    return analyse(arms, records).conclusion


def test_the_sentence_follows_the_numbers() -> None:
    assert "reuses 0% and makes the server compute 5.0 times as many" in conclusion(two_arms(1))
    assert "reuses 50% and makes the server compute 2.5 times as many" in conclusion(two_arms(1, 50))


def test_no_arm_is_called_dear_where_none_is() -> None:
    sentence = conclusion(two_arms(1, worst_cached=80))
    assert "dearest" not in sentence
    assert "2 of 2 calls" in sentence


def test_a_broken_prediction_is_counted_not_hidden() -> None:
    records = [record("append-only", 0, cached=80), record("null-rebuild", 0, cached=80, predicted=96)]
    assert "agree in 1 of 2 calls" in conclusion(records)


def test_too_few_seeds_give_no_interval_and_no_sentence_about_time() -> None:
    analysis = analyse(ARMS, two_arms(SEEDS_FOR_INTERVAL - 1))
    assert "waiting" not in analysis.conclusion
    assert "[" not in str(cell(analysis, "added TTFT, s [95 %]"))


def test_enough_seeds_give_an_interval_a_corrected_p_and_a_detectable_effect() -> None:
    analysis = analyse(ARMS, two_arms(8))
    assert "95 % interval" in analysis.conclusion
    assert "8 seeds" in analysis.conclusion
    added, p, detectable = (
        cell(analysis, column) for column in ("added TTFT, s [95 %]", "p (Holm)", "detectable, s")
    )
    assert str(added).startswith("+3.35 [")
    assert isinstance(p, float)
    assert isinstance(detectable, float)


def test_the_parts_of_every_bar_add_up_to_its_prompt_tokens() -> None:
    call = CallRecord(
        prompt_tokens=100,
        cached_tokens=64,
        predicted_tokens=64,
        causes={"new": 20, "divergence": 10, "block_rounding": 6},
    )
    made = record("append-only", 0, cached=64).model_copy(update={"calls": (call,)})
    stacked = analyse(ARMS, [made]).figures[0]
    assert sum(stacked.stacks[0].values) == 100


def of_clock(named: dict[str, int], **more: object) -> TrialRecord:
    """A call of the clock's arm that reuses 64 of 100 tokens, its other 36 by proven cause."""
    call = CallRecord(
        prompt_tokens=100,
        cached_tokens=64,
        predicted_tokens=64,
        output_tokens=1,
        causes={"new": 20, "divergence": 10, "block_rounding": 6},
        named=named,
        **more,
    )
    return record("clock-system-head", 0, cached=64).model_copy(update={"calls": (call,)})


def test_proven_causes_are_shown_where_every_call_has_them_and_the_predictors_elsewhere() -> None:
    proven = of_clock({"new": 20, "clock": 10, "rest of a block": 6})
    (table,) = (table for table in analyse(ARMS, [proven]).tables if "lost to" in table.title)
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "arm": "Clock in the system prompt",
        "tokens computed": 36,
        "new at the end": 20,
        "rest of a block": 6,
        "clock": 10,
    }
    older = record("append-only", 0, cached=64).model_copy(
        update={"calls": (proven.calls[0].model_copy(update={"named": {}}),)}
    )
    (table,) = (table for table in analyse(ARMS, [proven, older]).tables if "lost to" in table.title)
    assert "other ids than stored" in table.columns
    assert "clock" not in table.columns


causes = st.dictionaries(st.sampled_from(["new", "clock", "tool order", "last token"]), st.integers(1, 99))


@given(st.lists(causes, min_size=1, max_size=4), st.integers(0, 500))
def test_every_line_of_losses_adds_up_to_its_computed_tokens(
    calls: list[dict[str, int]], cached: int
) -> None:
    made = record("tools-shuffled", 0, cached=cached).model_copy(
        update={
            "calls": tuple(
                CallRecord(
                    prompt_tokens=cached + sum(named.values()),
                    cached_tokens=cached,
                    predicted_tokens=cached,
                    named=named,
                )
                for named in calls
            )
        }
    )
    analysis = analyse(ARMS, [made])
    row = analysis.tables[1].rows[0]
    computed = sum(sum(named.values()) for named in calls)
    assert row[1] == pytest.approx(computed)
    assert sum(row[2:]) == pytest.approx(computed)
    assert sum(analysis.figures[0].stacks[0].values) == pytest.approx(computed + cached * len(calls))


def test_causes_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="add up to the uncached 36 tokens, got 35"):
        of_clock({"new": 20, "clock": 10, "rest of a block": 5})


def test_every_arm_is_explained_with_its_first_broken_token() -> None:
    excerpt = BreakExcerpt(
        position=24, stored_ids=(1,), sent_ids=(2,), stored_text="<b>00.</b>", sent_text="37."
    )
    broken = of_clock(
        {"new": 20, "clock": 10, "rest of a block": 6},
        first_broken="message 0 (system), item system",
        excerpt=excerpt,
    )
    table = next(table for table in analyse(ARMS, [broken]).tables if table.title == "What broke first")
    row = dict(zip(table.columns, table.rows[0], strict=True))
    clock = next(arm for arm in ARMS if arm.name == "clock-system-head")
    assert row["what it does"] == clock.why
    assert row["first broken message"] == "message 0 (system), item system"
    assert (row["first broken token"], row["cause"]) == (24, "clock")
    assert (row["stored there"], row["sent instead"]) == ("<b>00.</b>", "37.")


def test_the_page_escapes_what_a_model_or_a_template_wrote() -> None:
    table = Table(title="t", columns=("stored",), rows=(("<script>x</script>",),))
    report = ReportModel(
        title="t",
        question="q",
        conclusion="c",
        diff=ArmDiff(arms=(), rows=()),
        tables=(table,),
        figures=(),
        arms=(),
        exclusions=(),
        environment=(),
        reproduce=(),
    )
    page = render_report(report)
    assert "&lt;script&gt;x&lt;/script&gt;" in page
    assert "<script>x" not in page


def test_tours_are_never_mixed_in_one_mean() -> None:
    thinking = record("append-only", 0, cached=10).model_copy(update={"task": "thinking-tour-1"})
    table = analyse(ARMS, [*two_arms(1), thinking]).tables[0]
    rows = {row[0]: row for row in table.rows}
    assert rows["Append-only"][table.columns.index("tokens computed")] == 20
    assert rows["Append-only · thinking"][table.columns.index("tokens computed")] == 90
    assert rows["Append-only · thinking"][table.columns.index("× append-only")] == 1


def test_the_ceiling_is_in_the_sentence_only_where_the_block_size_is_known() -> None:
    known = of_clock({}).model_copy(update={"arm": "append-only", "measures": {"block_size": 32}})
    assert "in 0 of 1 calls" in conclusion([known])  # nothing can have been stored before the first call
    assert "whole block" not in conclusion(two_arms(1))


def timed(arm: str, seed: int, calls: Sequence[tuple[int, int]], slowness: float = 1.0) -> TrialRecord:
    """Calls of (cached, computed) tokens on a machine that waits by the model's own law."""
    model = TtftModel(request_s=0.05, token_s=0.002, pair_s=1e-7)
    made = tuple(
        CallRecord(
            prompt_tokens=cached + computed,
            cached_tokens=cached,
            predicted_tokens=cached,
            ttft_s=slowness * model.seconds(cached, computed),
        )
        for cached, computed in calls
    )
    waited = sum(call.ttft_s or 0 for call in made)
    return record(arm, seed, cached=0, ttft=waited).model_copy(update={"calls": made})


def machine(slow_arm: str = "") -> list[TrialRecord]:
    shapes = {
        "append-only": [(0, 700), (640, 90), (736, 150)],
        "clock-system-head": [(0, 700), (0, 770), (0, 900)],
        "tools-shuffled": [(0, 700), (64, 690), (64, 830)],
        "sliding-window": [(0, 700), (640, 100), (640, 280)],
    }
    return [
        timed(arm, seed, shape, 2.0 if arm == slow_arm else 1.0)
        for arm, shape in shapes.items()
        for seed in range(SEEDS_FOR_INTERVAL)
    ]


def foretold(records: Sequence[TrialRecord]) -> dict[object, dict[str, object]]:
    table = next(table for table in analyse(ARMS, records).tables if "foretold" in table.title)
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def test_waits_are_foretold_from_the_tokens_of_all_other_arms() -> None:
    for row in foretold(machine()).values():
        assert row["of the median"] in ("+0%", "-0%")


def test_an_arm_that_breaks_the_law_does_not_teach_the_model_about_itself() -> None:
    rows = foretold(machine(slow_arm="sliding-window"))
    assert rows["Sliding window of 6 messages"]["of the median"] == "-50%"


def test_a_seed_in_which_the_machine_did_something_else_spoils_no_forecast() -> None:
    slow = [
        timed(one.arm, 0, [(c.cached_tokens or 0, c.prompt_tokens - c.cached_tokens) for c in one.calls], 9.0)
        if one.seed == 0
        else one
        for one in machine()
    ]
    for row in foretold(slow).values():
        assert row["of the median"] in ("+0%", "-0%")
        assert not str(row["sum of TTFT, s [95 %]"]).startswith(str(row["median, s"]))


def test_nothing_is_foretold_from_too_few_seeds() -> None:
    few = [one for one in machine() if one.seed < SEEDS_FOR_INTERVAL - 1]
    assert not any("foretold" in table.title for table in analyse(ARMS, few).tables)
