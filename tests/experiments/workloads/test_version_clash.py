from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.workloads import Marking, Reason, VersionClash, version_clash
from serving.assembler import ContextPolicy, DropReason, FixedCounter, Packet, assemble
from tests.support.solvers import texts


def packet(scenario: VersionClash) -> Packet:
    built = assemble(scenario.request(window=100_000, max_output=10), ContextPolicy(), FixedCounter())
    assert isinstance(built, Packet)
    return built


@settings(max_examples=50)
@given(seed=st.integers(0, 999), versions=st.integers(2, 8), marking=st.sampled_from(Marking))
def test_one_version_is_in_force_on_the_day_of_the_question(
    seed: int, versions: int, marking: Marking
) -> None:
    scenario = version_clash(seed, versions=versions, marking=marking)
    begun = [version for version in scenario.versions if version.effective <= scenario.now]
    assert begun[-1] == scenario.versions[scenario.in_force]
    assert scenario.context().now == scenario.now
    assert f"{scenario.now:%Y-%m-%d}" in scenario.question
    assert [version.effective for version in scenario.versions] == sorted(
        {version.effective for version in scenario.versions}
    )


def test_half_the_seeds_ask_for_a_version_that_is_not_the_newest() -> None:
    newest = [one.in_force == len(one.versions) - 1 for one in map(version_clash, range(40))]
    assert sum(newest) == 20


@pytest.mark.parametrize("seed", range(6))
def test_with_dates_only_all_versions_are_shown_with_their_dates(seed: int) -> None:
    scenario = version_clash(seed, versions=3)
    text = texts(packet(scenario))
    for version in scenario.versions:
        assert f"at most {version.value} visitors" in text
        assert f'effective="{version.effective.isoformat()}"' in text


@pytest.mark.parametrize("seed", range(6))
def test_scoped_versions_that_do_not_hold_leave_no_trace(seed: int) -> None:
    scenario = version_clash(seed, versions=4, marking=Marking.SCOPED)
    built = packet(scenario)
    whole = built.model_dump_json()
    for index, version in enumerate(scenario.versions):
        shown = index == scenario.in_force
        assert (f"at most {version.value} visitors" in texts(built)) is shown
        assert (f"rule-v{index + 1}" in whole) is shown


def test_superseded_versions_become_notes_that_say_why() -> None:
    scenario = version_clash(1, versions=3, marking=Marking.SUPERSEDED)
    assert scenario.in_force == 2
    built = packet(scenario)
    assert "a newer version is in force" in texts(built)
    for version in scenario.versions[:2]:
        assert version.value not in texts(built)
    dropped = {item.id for item in built.manifest.dropped if item.reason is DropReason.SUPERSEDED}
    assert dropped == {"rule-v1", "rule-v2"}


def test_an_older_and_a_later_version_are_told_from_any_other_number() -> None:
    scenario = next(
        one for one in (version_clash(seed, versions=3) for seed in range(1, 40, 2)) if one.in_force == 1
    )
    old, right, later = (version.value for version in scenario.versions)
    assert [scenario.grade(value).reason for value in (old, right, later, "5")] == [
        Reason.SUPERSEDED_VERSION,
        Reason.CORRECT,
        Reason.VERSION_NOT_IN_FORCE,
        Reason.WRONG,
    ]
