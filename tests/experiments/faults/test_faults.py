"""What holds for every fault: see the other files of this folder for what each of them does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.faults import FAULTS, FaultContext, build_faults
from experiments.workloads import file_tour
from serving.assembler import FRAMING, FixedCounter, Invariant, leaves
from serving.assembler.faults import broken_invariants
from serving.errors import UsageError
from tests.support.broken import broken, written
from tests.support.sabotage import BEGIN, CALLS, RUN, Recorder, sent

DESTRUCTIVE = [name for name in FAULTS if name != "null"]


def declared(name: str) -> frozenset[Invariant]:
    (fault,) = build_faults([name], FaultContext(0, BEGIN, 0))
    return fault.breaks


def test_without_a_fault_each_call_extends_the_one_before() -> None:
    tour = file_tour()
    for call in range(tour.calls - 1):
        before, after = sent(call, run=tour).packet, sent(call + 1, run=tour).packet
        assert after.messages[: len(before.messages)] == before.messages
        assert after.tools == before.tools


def test_the_null_fault_rebuilds_the_same_bytes_and_spans() -> None:
    for call in range(CALLS):
        plain, rebuilt = sent(call), sent(call, "null")
        assert rebuilt.draft == plain.draft
        assert rebuilt.packet.manifest.packet_sha256 == plain.packet.manifest.packet_sha256
        assert rebuilt.packet.spans == plain.packet.spans
        assert all(
            a.message is not b.message
            for a, b in zip(plain.draft.messages, rebuilt.draft.messages, strict=True)
        )


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_listed_under_its_name_with_what_it_breaks(name: str) -> None:
    *_, record, _recorder = sent(3, name).packet.manifest.faults
    assert record.name == name
    assert record.breaks == tuple(sorted(declared(name)))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_breaks_exactly_what_it_declares(name: str) -> None:
    plain = [sent(call).draft for call in range(CALLS)]
    faulty = [sent(call, name).draft for call in range(CALLS)]
    assert broken(plain, plain) == frozenset()
    assert broken(plain, faulty) == declared(name)


@pytest.mark.parametrize("name", FAULTS)
def test_in_one_packet_a_fault_breaks_no_checked_invariant_but_its_own(name: str) -> None:
    checked = {Invariant.ONE_SYSTEM_MESSAGE, Invariant.TOOL_CALLS_PAIRED, Invariant.RESULTS_IN_CALL_ORDER}
    assert broken_invariants(sent(CALLS - 1, name).draft) == declared(name) & checked


@pytest.mark.parametrize("name", DESTRUCTIVE)
def test_a_fault_changes_some_call_and_gives_the_same_bytes_again(name: str) -> None:
    faulty = [sent(call, name) for call in range(CALLS)]
    assert any(one.draft != sent(call).draft for call, one in enumerate(faulty))
    assert [sent(call, name) for call in range(CALLS)] == faulty


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_leaves_its_input_alone_so_that_without_it_the_bytes_are_the_same(name: str) -> None:
    before = sent(CALLS - 1)
    kept = json.dumps([message.message.model_dump() for message in before.draft.messages])
    times = (BEGIN,) * (CALLS - 1)
    (fault,) = build_faults([name], FaultContext(CALLS - 1, BEGIN, 0, times=times))
    fault.apply(before.draft)
    assert json.dumps([message.message.model_dump() for message in before.draft.messages]) == kept
    assert sent(CALLS - 1).packet == before.packet


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("call", [0, 2, CALLS - 1])
def test_every_span_of_a_faulty_packet_covers_the_words_of_its_item(name: str, call: int) -> None:
    plain, faulty = sent(call), sent(call, name)
    own: dict[str, set[str]] = {}
    for owner, text in written(plain.draft):
        own.setdefault(owner, set()).add(text)
    for message in plain.draft.messages:
        for span in message.spans:
            if span.path[0] == "tool_calls":
                # Flattened, a call is one text of its item.
                one = message.message.tool_calls[int(span.path[1])]
                own.setdefault(span.item_id, set()).add(f"[{one.name} {one.arguments}]")
    for owner, text in written(faulty.draft):
        replaced = name == "replacements-rotated" and "#" in owner
        assert text in own[owner] or (replaced and text.startswith("[result left out"))
    texts = dict(leaves(faulty.packet.messages, faulty.packet.tools))
    for packet_span in faulty.packet.spans:
        if packet_span.path in texts and packet_span.end is not None:
            assert 0 <= packet_span.start < packet_span.end <= len(texts[packet_span.path])


@pytest.mark.parametrize("name", FAULTS)
def test_every_token_is_counted_once_and_what_a_fault_wrote_is_framing(name: str) -> None:
    faulty = sent(4, name)
    rendered = FixedCounter().render(faulty.packet.messages, faulty.packet.tools, faulty.packet.spans)
    tokens = rendered.tokens_by_item()
    assert sum(tokens.values()) == len(rendered.token_ids)
    assert tokens.keys() <= {item.id for item in faulty.packet.manifest.selected} | {FRAMING}


@settings(max_examples=60)
@given(
    names=st.lists(st.sampled_from(sorted(FAULTS)), max_size=3, unique=True),
    call=st.integers(0, CALLS - 1),
    seed=st.integers(0, 99),
)
def test_faults_can_be_combined_and_stay_deterministic(names: list[str], call: int, seed: int) -> None:
    one, two = sent(call, *names, seed=seed), sent(call, *names, seed=seed)
    assert one == two
    allowed = frozenset().union(*(declared(name) for name in names))
    assert broken_invariants(one.draft) <= allowed
    assert [record.name for record in one.packet.manifest.faults[:-1]] == names


def test_an_unknown_fault_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="no fault 'sunspots'"):
        build_faults(["sunspots"], FaultContext(0, BEGIN, 0))


def test_the_run_of_these_tests_holds_what_faults_are_about() -> None:
    steps = [turn for turn in RUN.turns if turn.kind.value == "tool_step"]
    assert CALLS == 7
    assert any(len(step.calls) > 1 for step in steps)
    assert any(len(json.loads(call.arguments)) > 1 for step in steps for call in step.calls)
    assert any(not step.text and step.reasoning for step in steps)
    assert Recorder().breaks == frozenset()
