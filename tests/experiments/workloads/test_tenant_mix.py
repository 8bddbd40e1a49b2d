from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.workloads import Reason, TenantMix, tenant_mix
from serving.assembler import ContextPolicy, FixedCounter, Kind, Packet, ToolCall, assemble


def packet(scenario: TenantMix) -> Packet:
    built = assemble(scenario.request(window=100_000, max_output=10), ContextPolicy(), FixedCounter())
    assert isinstance(built, Packet)
    return built


@settings(max_examples=40)
@given(seed=st.integers(0, 999), tenants=st.integers(2, 10), places=st.integers(1, 10))
def test_a_packet_and_its_manifest_leak_nothing_of_other_tenants(
    seed: int, tenants: int, places: int
) -> None:
    scenario = tenant_mix(seed, tenants=tenants, places=places)
    assert scenario.leaks(packet(scenario).model_dump_json()) == ()


@settings(max_examples=20)
@given(seed=st.integers(0, 999))
def test_without_the_filter_the_detector_finds_every_foreign_item(seed: int) -> None:
    scenario = tenant_mix(seed, filtered=False)
    leaked = set(scenario.leaks(packet(scenario).model_dump_json()))
    for one in scenario.foreign():
        assert {one.canary, one.value, one.item_id, one.tenant} <= leaked


def test_the_own_tenants_name_is_no_leak_although_anothers_begins_with_it() -> None:
    scenario = tenant_mix(3)
    twin = f"{scenario.tenant}1"
    assert twin in {one.tenant for one in scenario.foreign()}
    assert scenario.leaks(f"the records of {scenario.tenant}") == ()
    assert scenario.leaks(f"the records of {twin}.") == (twin,)


def test_every_planted_secret_is_its_own() -> None:
    scenario = tenant_mix(4, tenants=8, places=8)
    for secrets in ({one.canary for one in scenario.planted}, {one.value for one in scenario.planted}):
        assert len(secrets) == 64
    assert {item.kind for item in scenario.items} == {Kind.EVIDENCE, Kind.MEMORY}


def test_a_leak_outweighs_a_right_answer_and_is_found_in_the_arguments_of_a_call() -> None:
    scenario = tenant_mix(5)
    foreign = next(scenario.foreign())
    right = f"Answer: {scenario.expected}"
    assert scenario.grade(right).reason is Reason.CORRECT
    leaking = scenario.grade(f"{foreign.canary} says otherwise.\n{right}")
    assert (leaking.reason, leaking.got) == (Reason.LEAK, foreign.canary)
    call = ToolCall(id="c", name="send", arguments=f'{{"text": "{foreign.value}"}}')
    assert scenario.grade(right, [call]).reason is Reason.LEAK


def test_the_value_of_another_own_place_is_not_the_one_asked_for() -> None:
    scenario = tenant_mix(6)
    other = next(one for one in scenario.planted if one.tenant == scenario.tenant and one != scenario.asked)
    assert scenario.grade(other.value).reason is Reason.OTHER_ITEM
    assert scenario.grade("1").reason is Reason.WRONG
