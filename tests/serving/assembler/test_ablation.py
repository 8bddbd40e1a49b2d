from __future__ import annotations

from pathlib import Path

import pytest

from serving.assembler import (
    AblateBy,
    AssemblyRequest,
    ContextItem,
    ContextPolicy,
    Evidence,
    FixedCounter,
    Instruction,
    Packet,
    RequestContext,
    Scope,
    UserTurn,
    ablations,
    assemble,
    history_items,
)

EXAMPLE = Path(__file__).parents[3] / "examples" / "support_agent.json"
HERE = Scope(tenant="t1")


def request() -> AssemblyRequest:
    return AssemblyRequest(
        context=RequestContext(tenant="t1", actor="u1", now="2026-10-02"),
        candidates=(
            ContextItem(id="rule", payload=Instruction(text="be brief")),
            ContextItem(id="new", payload=Evidence(text="n"), scope=HERE, supersedes=("old",)),
            ContextItem(id="must", payload=Evidence(text="m"), scope=HERE, required=True),
            ContextItem(id="old", payload=Instruction(text="o"), scope=HERE),
            ContextItem(id="secret", payload=Evidence(text="s"), scope=Scope(tenant="t2")),
        ),
        history=history_items([UserTurn(text="why?")]),
        window=900,
        max_output=10,
    )


def test_required_items_stay_and_are_reported() -> None:
    by_name = {ablation.name: ablation for ablation in ablations(request(), AblateBy.KIND)}
    assert by_name["evidence"].removed == ("new",)
    assert by_name["evidence"].required_kept == ("must",)
    assert by_name["user_turn"].removed == ()
    assert by_name["user_turn"].required_kept == ("turn-000",)
    assert by_name["user_turn"].request == request()


def test_required_items_go_only_when_that_is_asked_for_and_are_reported_then_too() -> None:
    by_name = {
        ablation.name: ablation for ablation in ablations(request(), AblateBy.KIND, remove_required=True)
    }
    assert by_name["evidence"].removed == ("must", "new")
    assert by_name["evidence"].required_removed == ("must",)
    assert by_name["user_turn"].request.history == ()


def test_an_item_that_only_a_removed_one_superseded_is_named_as_revived() -> None:
    by_name = {ablation.name: ablation for ablation in ablations(request(), AblateBy.KIND)}
    assert by_name["evidence"].revived == ("old",)
    assert by_name["instruction"].revived == ()


def test_an_item_out_of_scope_is_named_nowhere_and_left_alone() -> None:
    for ablation in ablations(request(), AblateBy.KIND, remove_required=True):
        named = (*ablation.removed, *ablation.required_kept, *ablation.revived)
        assert "secret" not in named
        assert any(item.id == "secret" for item in ablation.request.candidates)


@pytest.mark.parametrize("by", AblateBy)
def test_each_ablation_takes_one_group_away_and_together_they_take_all(by: AblateBy) -> None:
    whole = AssemblyRequest.model_validate_json(EXAMPLE.read_text(encoding="utf-8"))
    found = ablations(whole, by, remove_required=True)
    ids = [item.id for item in (*whole.candidates, *whole.history, *whole.tools)]
    taken = [item_id for ablation in found for item_id in ablation.removed]
    assert sorted(taken) == sorted(set(ids) - {"other-tenant-runbook"})


def test_every_ablated_example_still_assembles_without_what_was_removed() -> None:
    whole = AssemblyRequest.model_validate_json(EXAMPLE.read_text(encoding="utf-8"))
    removed_any = False
    for ablation in ablations(whole, AblateBy.KIND):
        packet = assemble(ablation.request, ContextPolicy(), FixedCounter())
        assert isinstance(packet, Packet)
        selected = {item.id for item in packet.manifest.selected}
        assert not selected & set(ablation.removed)
        removed_any |= bool(ablation.removed)
    assert removed_any


def test_evidence_that_stands_in_the_history_is_required_there() -> None:
    sent = ContextItem(id="sent", payload=Evidence(text="e"), scope=HERE)
    whole = request()
    whole = whole.model_copy(update={"history": (*whole.history, sent)})
    by_name = {ablation.name: ablation for ablation in ablations(whole, AblateBy.KIND)}
    assert by_name["evidence"].required_kept == ("must", "sent")
    assert by_name["evidence"].request.history == whole.history


def test_an_item_out_of_scope_stays_although_one_in_scope_has_its_id() -> None:
    whole = request()
    twin = ContextItem(id="new", payload=Evidence(text="t"), scope=Scope(tenant="t2"))
    whole = whole.model_copy(update={"candidates": (*whole.candidates, twin)})
    by_name = {ablation.name: ablation for ablation in ablations(whole, AblateBy.KIND)}
    assert by_name["evidence"].removed == ("new",)
    assert [item for item in by_name["evidence"].request.candidates if item.id == "new"] == [twin]
