from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.faults import FAULTS
from experiments.framework.arms import NULL_REBUILD, FactorPrefix, resolve
from experiments.framework.served_model import ServedModel
from experiments.framework.study import Study, check_study
from experiments.prefix_cache import ARMS, PrefixCacheLiveStudy, PrefixCacheStudy
from experiments.prefix_cache.arms import APPEND_ONLY, REASONING, TIMED
from experiments.prefix_cache.replay import Way
from experiments.prefix_cache.study import trajectory_of
from experiments.prefix_cache.tours import Tour, tour_of
from experiments.workloads import file_tour
from serving.assembler import AssistantTurn, BarMode, Carrier, ToolStep, UserTurn
from serving.errors import UsageError
from serving.models import reasons

REASONING_MODEL, OTHER_MODEL = "qwen3-nano-shape", "qwen2.5-coder-0.5b"
BY_NAME = {arm.name: arm for arm in ARMS}


def way(arm: str) -> Way:
    return Way.of(resolve(PrefixCacheStudy(REASONING_MODEL).base, BY_NAME[arm]))


@pytest.mark.parametrize("study", [PrefixCacheStudy, PrefixCacheLiveStudy])
def test_arms_differ_in_declared_factors_only_and_no_two_alike(study: type[Study[ServedModel]]) -> None:
    made = study(OTHER_MODEL)
    diff = check_study(made, made.arms)
    changed = {arm for arm, *_ in diff.changes()}
    assert changed == {arm.name for arm in made.arms} - {APPEND_ONLY}


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_an_arm_says_in_two_sentences_what_it_does(arm) -> None:
    assert len(re.findall(r"[.:?](?: |$)", arm.why)) in (2, 3)
    assert len(arm.title) <= 34, "figures cut longer titles"
    kinds = {path.partition(".")[0] for path in arm.factors}
    assert kinds <= set(FactorPrefix)
    assert len(kinds) <= 2


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_every_arm_can_be_read_as_a_way_to_send(arm) -> None:
    read = way(arm.name)
    assert set(read.faults) <= set(FAULTS)
    assert read.rebuild is (arm.name == NULL_REBUILD)


def test_a_bar_comes_in_both_modes_by_each_carrier() -> None:
    found = {
        (read.policy.status_bar.mode, read.policy.carrier)
        for read in (way(arm.name) for arm in ARMS)
        if read.policy.status_bar is not None
    }
    assert found == {
        (mode, carrier)
        for mode in BarMode
        for carrier in (Carrier.TAIL_OF_LAST_TOOL_RESULT, Carrier.USER, Carrier.TOOL_RESPONSE)
    }


def test_masks_frozen_and_rotated_differ_in_the_fault_alone() -> None:
    frozen, rotated = way("masking-frozen"), way("masking-rotated")
    assert frozen.policy == rotated.policy
    assert (frozen.faults, rotated.faults) == ((), ("replacements-rotated",))


def trials(model: str, size: str) -> dict[str, set[str]]:
    study = PrefixCacheStudy(model)
    (chosen,) = (one for one in study.sizes if one.name == size)
    found: dict[str, set[str]] = {}
    for spec in study.plan(chosen):
        for arm in study.arms:
            if study.applies(arm, spec):
                found.setdefault(tour_of(spec.task).value, set()).add(arm.name)
    return found


def test_reasoning_arms_run_where_the_model_reasons_and_beside_their_own_base() -> None:
    everything = {arm.name for arm in ARMS}
    assert trials(REASONING_MODEL, "full") == {
        "file-tour": everything - REASONING,
        "thinking-tour": REASONING | {APPEND_ONLY, NULL_REBUILD},
    }
    assert trials(OTHER_MODEL, "full") == {"file-tour": everything - REASONING}


def test_times_are_measured_on_a_few_arms_with_twenty_seeds() -> None:
    assert trials(OTHER_MODEL, "timing") == {"timed-tour": set(TIMED)}
    study = PrefixCacheStudy(OTHER_MODEL)
    (timing,) = (size for size in study.sizes if size.name == "timing")
    assert len({spec.seed for spec in study.plan(timing)}) >= 20
    assert len(TIMED) >= 4


def test_whether_a_model_reasons_is_known_before_it_is_pulled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTXLAB_CACHE", str(tmp_path))  # an empty cache
    assert reasons(REASONING_MODEL)
    assert not reasons(OTHER_MODEL)
    assert not reasons("somebody/something")


def test_the_thinking_tour_is_the_file_tour_with_thoughts() -> None:
    study = PrefixCacheStudy(REASONING_MODEL)
    (full,) = (one for one in study.sizes if one.name == "full")
    specs = {tour_of(spec.task): spec for spec in study.plan(full)}
    plain, thinking = (trajectory_of(specs[tour]) for tour in (Tour.FILES, Tour.THINKING))
    assert plain == file_tour(0)
    for one, other in zip(plain.turns, thinking.turns, strict=True):
        if isinstance(other, UserTurn):
            assert one == other
        else:
            assert isinstance(other, AssistantTurn | ToolStep)
            assert other.reasoning
            assert other.model_copy(update={"reasoning": None}) == one
    thoughts = [turn.reasoning for turn in thinking.turns if not isinstance(turn, UserTurn)]
    assert len(set(thoughts)) == len(thoughts)


def test_a_task_of_another_study_is_refused() -> None:
    with pytest.raises(UsageError, match="file-tour"):
        tour_of("every-2-updates-6")
