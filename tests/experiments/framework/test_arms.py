from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from experiments.framework.arms import (
    Arm,
    canonical,
    check_declared,
    diff_arms,
    resolve,
    whole_number,
)
from serving.errors import LabError, UsageError

BASE: dict[str, JsonValue] = {"policy.layout": "append", "fault.clock": None, "engine.block_size": 16}
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.text("ab", max_size=4), st.lists(st.integers(0, 3))
)
FACTORS = st.dictionaries(st.sampled_from(sorted(BASE)), VALUES)


def arm(name: str, **factors: JsonValue) -> Arm:
    return Arm(
        name=name, title=name, why="", factors={path.replace("__", "."): v for path, v in factors.items()}
    )


def test_an_arm_is_the_base_with_its_own_factors_on_top() -> None:
    assert resolve(BASE, arm("clock", fault__clock="head")) == {**BASE, "fault.clock": "head"}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("polcy.layout", "begins with one of policy., fault."),
        ("layout", "begins with one of"),
        ("policy", "lower case"),
        ("policy.", "lower case"),
        ("policy.Layout", "lower case"),
        ("fault.clok", "did you mean 'fault.clock'"),
        ("load.rate", "add it to the base"),
    ],
)
def test_a_path_that_is_wrong_or_not_in_the_base_is_refused(path: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve(BASE, Arm(name="a", title="", why="", factors={path: 1}))


def test_a_factor_cannot_be_a_value_and_a_family_at_once() -> None:
    with pytest.raises(UsageError, match="not both"):
        resolve({"policy.bar": 1, "policy.bar.carrier": 2}, arm("a"))


def test_a_value_outside_json_is_refused() -> None:
    with pytest.raises(UsageError, match="JSON cannot carry"):
        resolve(BASE, arm("a", fault__clock=float("nan")))


def test_an_undeclared_difference_names_arm_path_and_both_values() -> None:
    diff = diff_arms(BASE, [arm("a"), arm("b", fault__clock="head", engine__block_size=32)])
    with pytest.raises(UsageError, match=r"'b'.*'engine.block_size'.*16.*32"):
        check_declared(diff, frozenset({"fault.clock"}))
    check_declared(diff, frozenset({"fault.clock", "engine.block_size"}))


def test_true_and_one_are_different_values() -> None:
    diff = diff_arms({"policy.x": 1}, [arm("a", policy__x=True)])
    assert [row.path for row in diff.rows] == ["policy.x"]


def test_key_order_inside_a_value_is_no_difference() -> None:
    assert not diff_arms({"policy.x": {"a": 1, "b": 2}}, [arm("a", policy__x={"b": 2, "a": 1})]).rows


def test_the_text_shows_only_arms_that_differ() -> None:
    text = diff_arms(BASE, [arm("same"), arm("late", fault__clock="tail")]).to_text()
    assert text == 'fault.clock  (base null)\n    late  "tail"'
    assert "No factor differs" in diff_arms(BASE, [arm("same")]).to_text()


@given(st.lists(FACTORS, min_size=1, max_size=5))
def test_the_diff_holds_exactly_the_cells_that_differ_and_survives_json(
    chosen: list[dict[str, JsonValue]],
) -> None:
    arms = [Arm(name=f"a{i}", title="", why="", factors=factors) for i, factors in enumerate(chosen)]
    diff = diff_arms(BASE, arms)
    expected = {
        (f"a{i}", path)
        for i, factors in enumerate(chosen)
        for path, value in factors.items()
        if canonical(value) != canonical(BASE[path])
    }
    assert {(name, path) for name, path, _, _ in diff.changes()} == expected
    assert type(diff).model_validate(json.loads(json.dumps(diff.to_json()))) == diff


@given(FACTORS)
def test_resolving_shares_nothing_with_its_sources(factors: dict[str, JsonValue]) -> None:
    source = Arm(name="a", title="", why="", factors=factors)
    before = canonical(source.model_dump(mode="json")), canonical(BASE)
    for value in resolve(BASE, source).values():
        if isinstance(value, list):
            value.append("changed")
    assert (canonical(source.model_dump(mode="json")), canonical(BASE)) == before


def test_a_factor_that_has_to_be_a_whole_number_is_one_or_is_refused() -> None:
    assert whole_number({"decode.max_tokens": 8}, "decode.max_tokens") == 8
    for wrong in (8.5, "8", None, True):
        with pytest.raises(LabError, match=r"whole number for the factor 'decode\.max_tokens'"):
            whole_number({"decode.max_tokens": wrong}, "decode.max_tokens")
