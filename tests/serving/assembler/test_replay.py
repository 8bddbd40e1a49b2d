from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.assembler import (
    AssemblyRequest,
    ContextManifest,
    ContextPolicy,
    Draft,
    Evidence,
    FixedCounter,
    Invariant,
    Rendered,
    ReplayReason,
    Scope,
    Snapshot,
    SuffixPosition,
    Verdict,
    assemble,
    replay,
)
from serving.errors import LabError

EXAMPLE = Path(__file__).parents[3] / "examples" / "support_agent.json"
REQUEST = AssemblyRequest.model_validate_json(EXAMPLE.read_text(encoding="utf-8"))
POLICY = ContextPolicy()
COUNTER = FixedCounter()
MANIFEST = assemble(REQUEST, POLICY, COUNTER).manifest


class Swapped:
    """Sends the messages without their last one."""

    name = "swapped"
    breaks = frozenset({Invariant.APPEND_ONLY, Invariant.REQUIRED_PRESENT})

    def apply(self, draft: Draft) -> Draft:
        return Draft(draft.messages[:-1], draft.tools)


def again(manifest: ContextManifest = MANIFEST, **parts: Any) -> Any:
    return replay(manifest, **{"request": REQUEST, "policy": POLICY, "renderer": COUNTER, **parts})


def without(item_id: str) -> AssemblyRequest:
    kept = tuple(item for item in REQUEST.candidates if item.id != item_id)
    return REQUEST.model_copy(update={"candidates": kept})


def test_the_same_parts_give_the_same_packet() -> None:
    found = again()
    assert found.verdict is Verdict.EXACT
    assert (found.reasons, found.missing) == ((), ())
    assert found.replayed_manifest_id == MANIFEST.manifest_id
    assert found.replayed_packet_sha256 == MANIFEST.packet_sha256
    assert found.diff.is_empty


def test_a_record_that_went_through_json_replays_exactly() -> None:
    stored = ContextManifest.model_validate_json(MANIFEST.model_dump_json())
    request = AssemblyRequest.model_validate_json(REQUEST.model_dump_json())
    policy = ContextPolicy.model_validate_json(POLICY.model_dump_json())
    assert again(stored, request=request, policy=policy).verdict is Verdict.EXACT


def test_a_hand_off_replays_exactly() -> None:
    small = REQUEST.model_copy(update={"window": 600})
    manifest = assemble(small, POLICY, COUNTER).manifest
    assert manifest.budget.used > manifest.budget.budget
    assert again(manifest, request=small).verdict is Verdict.EXACT


@pytest.mark.parametrize(
    ("part", "snapshot"),
    [("request", Snapshot.REQUEST), ("policy", Snapshot.POLICY), ("renderer", Snapshot.RENDERER)],
)
def test_a_part_that_is_not_stored_makes_the_replay_partial(part: str, snapshot: Snapshot) -> None:
    found = again(**{part: None})
    assert found.verdict is Verdict.PARTIAL
    assert found.reasons == (ReplayReason.SNAPSHOT_MISSING,)
    assert [gone.snapshot for gone in found.missing] == [snapshot]
    assert found.diff is None


@pytest.mark.parametrize("item_id", ["memory-environment", "forum-post"])
def test_a_deleted_item_is_named_whether_it_was_sent_or_dropped(item_id: str) -> None:
    found = again(request=without(item_id))
    assert found.verdict is Verdict.PARTIAL
    assert [(gone.snapshot, gone.name) for gone in found.missing] == [(Snapshot.ITEM, item_id)]
    assert not found.diff.is_empty


def test_an_item_that_nobody_was_allowed_to_see_is_not_missed() -> None:
    assert again(request=without("other-tenant-runbook")).verdict is Verdict.EXACT


@pytest.mark.parametrize(
    ("parts", "reasons"),
    [
        (
            lambda: {"policy": ContextPolicy(suffix_position=SuffixPosition.BEFORE_TASK)},
            {"policy_changed", "manifest_differs", "packet_differs"},
        ),
        (
            lambda: {"renderer": FixedCounter(framing_per_message=3)},
            {"renderer_changed", "manifest_differs"},
        ),
        (
            lambda: {"request": REQUEST.model_copy(update={"step_id": "2"})},
            {"manifest_differs"},
        ),
        (
            lambda: {"faults": [Swapped()]},
            {"faults_changed", "manifest_differs", "packet_differs"},
        ),
    ],
    ids=["policy", "renderer", "step", "fault"],
)
def test_what_builds_packets_having_changed_makes_the_record_historical(
    parts: Callable[[], dict[str, Any]], reasons: set[str]
) -> None:
    found = again(**parts())
    assert found.verdict is Verdict.HISTORICAL
    assert {reason.value for reason in found.reasons} == reasons


def test_an_item_with_another_text_is_named() -> None:
    changed = tuple(
        item.model_copy(update={"payload": Evidence(text="other")}) if item.id == "runbook-401" else item
        for item in REQUEST.candidates
    )
    found = again(request=REQUEST.model_copy(update={"candidates": changed}))
    assert found.verdict is Verdict.HISTORICAL
    assert found.changed_items == ("runbook-401",)
    assert ReplayReason.PACKET_DIFFERS in found.reasons


def test_a_record_of_another_assembler_is_historical_even_if_the_bytes_agree() -> None:
    found = again(MANIFEST.model_copy(update={"assembler_version": "0"}))
    assert found.verdict is Verdict.HISTORICAL
    assert set(found.reasons) == {ReplayReason.ASSEMBLER_CHANGED, ReplayReason.MANIFEST_DIFFERS}


def test_a_recorded_fault_that_is_not_given_is_missing() -> None:
    manifest = assemble(REQUEST, POLICY, COUNTER, [Swapped()]).manifest
    assert again(manifest, faults=[Swapped()]).verdict is Verdict.EXACT
    found = again(manifest)
    assert found.verdict is Verdict.PARTIAL
    assert [(gone.snapshot, gone.name) for gone in found.missing] == [(Snapshot.FAULT, "swapped")]


def test_a_stored_request_that_the_assembler_refuses_is_a_reason_and_not_an_error() -> None:
    twice = REQUEST.model_copy(update={"tools": (*REQUEST.tools, REQUEST.tools[0])})
    found = again(request=twice)
    assert found.verdict is Verdict.HISTORICAL
    assert found.reasons == (ReplayReason.REFUSED,)
    assert "comes twice" in found.detail
    assert found.replayed_manifest_id is None


def test_an_item_that_the_reader_may_no_longer_see_counts_as_gone() -> None:
    moved = tuple(
        item.model_copy(update={"scope": Scope(tenant="acme-2")}) if item.id == "runbook-injected" else item
        for item in REQUEST.candidates
    )
    found = again(request=REQUEST.model_copy(update={"candidates": moved}))
    assert found.verdict is Verdict.PARTIAL
    assert [gone.name for gone in found.missing] == ["runbook-injected"]


def test_a_renderer_that_breaks_its_promise_is_an_error_and_no_verdict() -> None:
    class Lying(FixedCounter):
        def render(self, *packet: Any) -> Rendered:
            return Rendered((1, 2, 3), "", ())

    with pytest.raises(LabError, match="defect of the renderer"):
        again(renderer=Lying())
