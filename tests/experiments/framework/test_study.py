from __future__ import annotations

from pathlib import Path

import pytest

from experiments.framework.arms import Arm
from experiments.framework.study import check_study, plan_digest, size_named
from serving.errors import UsageError
from tests.support.toy_study import ARMS, SMALL, TINY, Toy


def test_the_diff_of_the_arms_is_the_treatment(tmp_path: Path) -> None:
    diff = check_study(Toy(tmp_path / "ledger"), ARMS)
    assert [row.path for row in diff.rows] == ["engine.block_size", "fault.clock", "harness.rebuild"]


def test_a_study_without_its_null_arm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="null arm 'null'"):
        check_study(Toy(tmp_path / "ledger"), ARMS[:1])


def test_two_arms_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two arms named 'append'"):
        check_study(Toy(tmp_path / "ledger"), (*ARMS, ARMS[0]))


def test_two_arms_with_the_same_factors_are_refused_but_for_the_null_arm(tmp_path: Path) -> None:
    study = Toy(tmp_path / "ledger")
    twin = Arm(name="twin", title="", why="", factors={"fault.clock": "head"})
    with pytest.raises(UsageError, match="'clock' and 'twin'"):
        check_study(study, (*ARMS, twin))
    check_study(study, (ARMS[0], Arm(name="null", title="", why="")))


def test_a_declared_factor_that_the_base_lacks_is_refused(tmp_path: Path) -> None:
    study = Toy(tmp_path / "ledger")
    study.declared = study.declared | {"load.rate"}
    with pytest.raises(UsageError, match=r"declares 'load\.rate'"):
        check_study(study, ARMS)


def test_an_undeclared_difference_is_refused(tmp_path: Path) -> None:
    study = Toy(tmp_path / "ledger")
    study.declared = study.declared - {"fault.clock"}
    with pytest.raises(UsageError, match=r"'clock'.*'fault\.clock'.*null.*\"head\""):
        check_study(study, ARMS)


def test_a_plan_repeats_outermost_and_its_digest_tells_plans_apart(tmp_path: Path) -> None:
    study = Toy(tmp_path / "ledger")
    plan = study.plan(SMALL)
    assert len(plan) == len(set(map(str, plan))) == 12
    assert [spec.repeat for spec in plan] == sorted(spec.repeat for spec in plan)
    assert plan_digest(plan) != plan_digest(study.plan(TINY)) != plan_digest(plan[:-1])


def test_an_unknown_size_lists_the_known_ones() -> None:
    assert size_named((TINY, SMALL), "small") is SMALL
    with pytest.raises(UsageError, match="tiny, small"):
        size_named((TINY, SMALL), "huge")
