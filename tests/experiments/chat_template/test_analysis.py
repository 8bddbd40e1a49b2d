from __future__ import annotations

from collections.abc import Sequence

import pytest

from experiments.chat_template.analysis import analyse
from experiments.chat_template.arms import accuracy_arms, replay_arms
from experiments.chat_template.cost_analysis import analyse_cost
from experiments.chat_template.names import IDS_KEPT, LATE_SYSTEM, REMINDER_HEAD, TEXT, TOOL_ROLE, USER_ROLE
from experiments.chat_template.pairs import compare, lost_share
from experiments.chat_template.replay_analysis import analyse_replay
from experiments.framework import CallRecord, CrossFigure, TrialRecord
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.trials import Measure, OutcomeKind
from experiments.tool_calling.names import EXCLUDED, NO_ISOLATION, REFUSED
from serving.errors import UsageError
from tests.support.made_record import made_record

ARMS = accuracy_arms("qwen2.5-coder-0.5b")


def record(arm: str, seed: int, *, right: bool, lost: int = 0, **measures: Measure) -> TrialRecord:
    given: dict[str, Measure] = {
        "success": right, "exact": right, "right_stop": right, "native_success": right, "wrong_calls": int(not right),
        "gave_up": None, "model_calls": 2, "ids_equal": 2, "later_calls": 1, "kept_all": int(lost == 0),
        "kept_prompt": 0, "lost_tokens": lost, "fixed_lost_tokens": lost, "fixed_prompt_tokens": 1000,
    }  # fmt: skip
    return made_record(
        "chat-template",
        arm,
        "chained",
        seed,
        {**given, **measures},
        kind=OutcomeKind.OK if right else OutcomeKind.TASK_FAILED,
    )


def runs(shares: dict[str, Sequence[bool]], losses: dict[str, int] | None = None) -> list[TrialRecord]:
    return [
        record(arm, seed, right=right, lost=(losses or {}).get(arm, 0))
        for arm, rights in shares.items()
        for seed, right in enumerate(rights)
    ]


ALL, NONE = [True] * 20, [False] * 20


def test_what_breaks_the_cache_and_what_breaks_the_model_are_told_apart() -> None:
    said = analyse(
        ARMS,
        runs(
            {TOOL_ROLE: ALL, TEXT: NONE, LATE_SYSTEM: ALL, USER_ROLE: NONE, IDS_KEPT: ALL},
            {TEXT: 100, LATE_SYSTEM: 50},
        ),
    ).conclusion
    assert (
        "cost both cached tokens and right answers, the same right turn being sent: “Flattened to text” (+10.0 %)."
        in said
    )
    assert (
        "no loss of right answers was found, the same right turn being sent: “Late system message” (+5.0 %)."
        in said
    )
    assert (
        "cost right answers and no cached tokens, the same right turn being sent: “Results as the user”."
        in said
    )
    assert (
        "cost no cached tokens, and no loss of right answers was found, the same right turn being sent: “Ids kept"
        in said
    )


def test_other_numbers_give_another_sentence() -> None:
    lowered = analyse(ARMS, runs({TOOL_ROLE: ALL, USER_ROLE: NONE})).conclusion
    assert "“Results as the user” lowers the share right by -100 [-100, -77] points" in lowered
    raised = analyse(ARMS, runs({TOOL_ROLE: NONE, USER_ROLE: ALL})).conclusion
    assert "raises the share right by +100" in raised
    assert "cost right answers" not in raised


def test_where_no_pair_disagrees_the_detectable_change_is_what_the_exact_test_can_find() -> None:
    [one] = compare(ARMS, runs({TOOL_ROLE: ALL, USER_ROLE: ALL}))
    assert (one.right.only_first, one.right.only_second, one.found) == (0, 0, False)
    assert one.detectable == one.right.detectable() is not None
    [few] = compare(ARMS, runs({TOOL_ROLE: [True] * 3, USER_ROLE: [True] * 3}))
    assert few.detectable is None
    said = analyse(ARMS, runs({TOOL_ROLE: [True] * 3, USER_ROLE: [True] * 3})).conclusion
    assert "(n 3; nothing at all)" in said


def test_where_nothing_can_be_lost_no_loss_is_said_to_be_missing() -> None:
    floor = analyse(ARMS, runs({TOOL_ROLE: NONE, TEXT: NONE}, {TEXT: 100})).conclusion
    assert "That leaves too few to lose: no loss that could happen here would have been found." in floor
    assert "no loss of right answers was found" not in floor
    # Right as often as a guess is, there is as little to lose.
    guessed = [
        one.model_copy(update={"measures": {**one.measures, "choices": 3}})
        for one in runs({TOOL_ROLE: [True, False, False] * 7, TEXT: [True, False, False] * 7})
    ]
    assert "too few to lose" in analyse(ARMS, guessed).conclusion
    assert "too few to lose" not in analyse(ARMS, runs({TOOL_ROLE: ALL, TEXT: ALL})).conclusion


def test_the_late_message_is_also_compared_with_its_words_at_the_head() -> None:
    found = compare(ARMS, runs({TOOL_ROLE: ALL, LATE_SYSTEM: NONE, REMINDER_HEAD: NONE}))
    assert [(one.arm, one.against) for one in found] == [
        (LATE_SYSTEM, TOOL_ROLE),
        (REMINDER_HEAD, TOOL_ROLE),
        (LATE_SYSTEM, REMINDER_HEAD),
    ]
    assert [one.found for one in found] == [True, True, False]
    assert found[0].adjusted == pytest.approx(3 * found[0].right.p_value)


def test_the_loss_is_a_share_of_prompt_tokens_paired_by_prompt() -> None:
    records = runs({TOOL_ROLE: ALL, TEXT: ALL}, {TOOL_ROLE: 20, TEXT: 120})
    own, difference = lost_share(records, TEXT), lost_share(records, TEXT, against=TOOL_ROLE)
    assert own is not None and own.estimate == pytest.approx(0.12)
    assert difference is not None and difference.estimate == pytest.approx(0.10)
    assert lost_share(records, USER_ROLE) is None


def test_one_figure_has_both_axes_with_intervals_and_neither_base_nor_null() -> None:
    records = runs({TOOL_ROLE: ALL, NULL_REBUILD: ALL, TEXT: [True, False] * 10, IDS_KEPT: ALL}, {TEXT: 80})
    [figure] = analyse(ARMS, records).figures
    assert isinstance(figure, CrossFigure)
    text, kept = figure.crosses
    assert (text.label, text.across, text.up) == ("Flattened to text", 8.0, -50.0)
    assert text.up_low is not None and text.up_low < text.up < 0
    assert (kept.across, kept.up) == (0.0, 0.0)


def test_prompts_that_were_not_asked_are_exclusions_and_a_refusal_is_a_wrong_turn() -> None:
    records = runs({TOOL_ROLE: ALL})
    records.append(made_record("chat-template", TOOL_ROLE, "single", 5, {EXCLUDED: NO_ISOLATION}))
    refused = {REFUSED: "no", "success": False, "exact": False, "right_stop": False, "native_success": False}
    records += [made_record("chat-template", LATE_SYSTEM, "chained", seed, refused) for seed in range(20)]
    found = analyse(ARMS, records)
    assert [(one.reason, one.trials) for one in found.exclusions] == [(NO_ISOLATION, 1)]
    assert "“Late system message” lowers the share right by -100" in found.conclusion
    row = next(row for row in found.tables[0].rows if row[0] == "Late system message")
    assert row[-1] == 20


def test_drift_is_counted_by_cause_and_absent_where_there_is_none() -> None:
    plain = runs({TOOL_ROLE: ALL})
    assert not any("by cause" in table.title for table in analyse(ARMS, plain).tables)
    plain[0] = record(TOOL_ROLE, 0, right=True, drift_retokenisation=2)
    table = next(table for table in analyse(ARMS, plain).tables if "by cause" in table.title)
    assert table.columns == ("arm", "later calls", "retokenisation")
    assert table.rows[0][2] == 2


def test_records_of_another_study_are_refused_in_a_sentence() -> None:
    for look in (analyse, analyse_cost, analyse_replay):
        with pytest.raises(UsageError, match="its arms are tool-role"):
            look(ARMS, [made_record("other", "other", "single", 0, {})])


def call(prompt: int, cached: int, predicted: int, ttft: float = 1.0) -> CallRecord:
    return CallRecord(prompt_tokens=prompt, cached_tokens=cached, predicted_tokens=predicted, ttft_s=ttft)


def test_the_cost_study_tells_of_agreement_and_of_calls_that_extend_what_was_stored() -> None:
    calls = (call(100, 0, 0, 3.0), call(150, 96, 96, 0.5))
    records = [
        record(TOOL_ROLE, 0, right=True).model_copy(update={"calls": calls}),
        record(TEXT, 0, right=False, lost=64).model_copy(update={"calls": calls}),
    ]
    found = analyse_cost(ARMS, records)
    assert "agree in 4 of 4 calls" in found.conclusion
    assert "extends what was stored under: “Structured, results as the tool”" in found.conclusion
    assert "“Flattened to text” 0 of 1" in found.conclusion
    assert found.tables[0].rows[0][5] == pytest.approx(96 / 150)
    records[0] = records[0].model_copy(update={"calls": (calls[0], call(150, 64, 96))})
    assert "agree in 3 of 4 calls" in analyse_cost(ARMS, records).conclusion


def replayed(arm: str, *, lost: int, refused: str | None = None, **more: Measure) -> TrialRecord:
    measures: dict[str, Measure] = {
        "model_calls": 6, "prompt_tokens": 4000, "cached_tokens": 3000 - lost, "uncached_tokens": 1000 + lost,
        "twin_tokens": 3000, "lost_tokens": lost, "kept_all": 5, "kept_prompt": 0, "ttft_s": 1.0,
        "cause_new": 900, "cause_divergence": 100 + lost, "first_break": None, **more,
    }  # fmt: skip
    if refused is not None:
        measures[REFUSED] = refused
    return made_record("chat-template-replay", arm, "task-0", 0, measures, calls=(call(100, 96, 96),))


def test_a_replay_says_which_ways_lose_more_and_which_families_refuse() -> None:
    arms = replay_arms("qwen3-nano-shape")
    records = [
        replayed(TOOL_ROLE, lost=288, **{"avoidable_reasoning dropped": 292}),
        replayed(NULL_REBUILD, lost=288),
        replayed(
            TEXT, lost=600, first_break="message 1 (user)", stored_there="<|im_end|>", sent_instead="\n"
        ),
        replayed(IDS_KEPT, lost=0),
        replayed("family-glm4moe", lost=0),
        replayed("family-qwen3-6", lost=64),
        replayed("late-qwen3-6", lost=0, refused="System message must be at the beginning."),
        replayed("late-glm4moe", lost=10),
    ]
    found = analyse_replay(arms, records)
    said = found.conclusion
    assert "agree in 8 of 8 requests" in said
    assert "288 of the 3000 tokens are lost" in said
    assert "These lose more: “Flattened to text” 600." in said
    assert "These lose less: “Ids kept (token-in)” 0." in said
    assert "reuses as many tokens" in said
    assert (
        "Of 2 other families' templates 0 refuse the conversation and 1 lose nothing over it (glm4moe)."
        in said
    )
    assert "1 refuse a late system message (qwen3_6) and 0 lose nothing over it." in said
    tables = {table.title: table for table in found.tables}
    assert tables["Refused"].rows == (
        ("qwen3_6, late system", 6.0, "System message must be at the beginning."),
    )
    broken = next(row for row in tables["What broke first"].rows if row[0] == "Flattened to text")
    assert broken[2:] == ("message 1 (user)", "<|im_end|>", "\n")
    assert [figure.name for figure in found.figures] == [
        "tokens-by-cause",
        "families-by-cause",
        "lost-by-cause",
    ]
