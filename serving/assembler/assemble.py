"""`assemble`: from a request, a policy and a renderer to a packet that fits, or to a hand-off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serving.assembler.budget import Fitted, fit
from serving.assembler.checks import check_request
from serving.assembler.compaction import CompactionPlan, NoCompaction, plan_compaction
from serving.assembler.draft import Draft
from serving.assembler.faults import Fault, apply_faults, broken_invariants
from serving.assembler.gates import Admitted, Drop, admit, in_scope
from serving.assembler.items import ContextItem
from serving.assembler.layout import Arrangement, arrange, lay_out
from serving.assembler.manifest import ContextManifest, DropReason
from serving.assembler.messages import FRAMING
from serving.assembler.neutral import Neutraliser, inert_marks
from serving.assembler.packers import packer_named
from serving.assembler.packet import HandOff, HandOffReason, LargestItem, Packet
from serving.assembler.policy import ContextPolicy
from serving.assembler.prepare import Prepared, estimated_tokens, prepare
from serving.assembler.renderer import Rendered, Renderer
from serving.assembler.report import Assembly, describe
from serving.assembler.request import AssemblyRequest
from serving.assembler.sensitive import check_ids, sensitive_items, without_secrets
from serving.assembler.utility import utility
from serving.errors import LabError, UsageError

_LARGEST_SHOWN = 5


def assemble(
    request: AssemblyRequest, policy: ContextPolicy, renderer: Renderer, faults: Sequence[Fault] = ()
) -> Packet | HandOff:
    """Build the input of one model call: gates, utility, budget, layout, faults, manifest.

    Pure: equal arguments give equal bytes, in any order of `candidates` and `tools`, and no argument is
    changed. The rendered packet has at most `request.budget` tokens; where the required items alone have
    more, a `HandOff` says by how much. What the packet showed in place of the log (`Packet.carry`) belongs in
    the run's next request. Raises `UsageError` for a request that makes no sense (see `checks.py`) and
    `LabError` for a renderer or a fault that breaks its own promise.
    """
    _check_arguments(request, policy, renderer)
    admitted = _admitted(request)
    worth = {
        item.id: utility(item.terms, policy.weights)
        for item in (
            *admitted.candidates,
            *admitted.history,
            *admitted.tools,
            *(drop.item for drop in admitted.dropped),
        )
    }
    prepared = prepare(admitted, request, policy)
    worth |= {
        item.id: utility(item.terms, policy.weights)
        for item in (*prepared.candidates, *prepared.history)
        if item.id not in worth
    }
    optional, useless = _split(prepared.candidates, worth)
    required = [item for item in prepared.candidates if item.is_required]
    neutraliser = Neutraliser(renderer.added_tokens)

    laid_out: dict[frozenset[str], tuple[Arrangement, Draft]] = {}

    def render(chosen: frozenset[str]) -> Rendered:
        kept = [*required, *(item for item in optional if item.id in chosen)]
        arrangement = arrange(kept, prepared.history, admitted.tools, policy, worth)
        draft = lay_out(arrangement, policy, neutraliser)
        laid_out[chosen] = arrangement, draft
        return _rendered(draft, renderer)

    fitted = fit(
        required=[*required, *prepared.history, *admitted.tools],
        optional=optional,
        worth=worth,
        budget=request.budget,
        packer=packer_named(policy.packer),
        render=render,
    )
    (selected, draft), rendered = laid_out[fitted.chosen], fitted.rendered
    if broken := broken_invariants(draft):
        raise LabError(f"The layout broke {', '.join(sorted(broken))}, which is a defect of the assembler.")
    inert = inert_marks(draft, neutraliser)
    due = _compaction(request, policy, admitted, prepared, rendered)
    if faults:
        draft = apply_faults(draft, faults)
        rendered = _rendered(draft, renderer)
    no_room = [item for item in optional if item.id not in fitted.chosen]
    manifest = describe(
        Assembly(
            request=request,
            policy=policy,
            renderer=renderer.identity,
            selected=selected.items,
            dropped=(
                *admitted.dropped,
                *(Drop(item, DropReason.COMPACTED) for item in prepared.covered),
                *(Drop(item, DropReason.UTILITY_NOT_POSITIVE) for item in useless),
                *(Drop(item, DropReason.NO_ROOM) for item in no_room),
            ),
            worth=worth,
            expected=fitted.expected,
            rendered=rendered,
            renders=fitted.renders,
            draft=draft,
            faults=tuple(faults),
            originals={item.id: item for item in admitted.history},
            prepared=prepared,
            compaction=due,
            inert=inert,
        )
    )
    if policy.look_for_secrets:
        manifest = without_secrets(manifest, sensitive_items(selected.items))
    outcome = _outcome(request, draft, fitted, rendered, manifest, prepared)
    return outcome.model_copy(update={"compaction": due}) if isinstance(due, CompactionPlan) else outcome


def _check_arguments(request: object, policy: object, renderer: object) -> None:
    if not isinstance(request, AssemblyRequest):
        raise UsageError(f"assemble takes an AssemblyRequest first, but a {type(request).__name__} came.")
    if not isinstance(policy, ContextPolicy):
        raise UsageError(f"assemble takes a ContextPolicy second, but a {type(policy).__name__} came.")
    if not isinstance(renderer, Renderer):
        raise UsageError(
            "assemble takes a renderer third ('identity', 'added_tokens' and a method 'render'), but a "
            f"{type(renderer).__name__} came."
        )


def _admitted(request: AssemblyRequest) -> Admitted:
    candidates, history, tools = (
        [item for item in items if in_scope(item, request.context)]
        for items in (request.candidates, request.history, request.tools)
    )
    check_request(candidates, history, tools)
    check_ids([*candidates, *history, *tools])
    return admit(request, history, [*candidates, *tools])


def _split(
    candidates: Sequence[ContextItem], worth: Mapping[str, float]
) -> tuple[list[ContextItem], list[ContextItem]]:
    """Optional items that are worth their place, and those that stay out even when they would fit."""
    optional = [item for item in candidates if not item.is_required]
    useful = [item for item in optional if worth[item.id] > 0]
    return useful, [item for item in optional if worth[item.id] <= 0]


def _compaction(
    request: AssemblyRequest,
    policy: ContextPolicy,
    admitted: Admitted,
    prepared: Prepared,
    rendered: Rendered,
) -> CompactionPlan | NoCompaction | None:
    """What to ask a summariser before the next call; the assembler asks none itself."""
    if policy.compaction is None:
        return None
    return plan_compaction(
        admitted.history,
        policy.compaction,
        count=estimated_tokens,
        budget=request.budget,
        used=len(rendered.token_ids),
        done=prepared.compactions,
        failures=prepared.carry.failures,
        rendered=rendered.tokens_by_item(),
    )


def _rendered(draft: Draft, renderer: Renderer) -> Rendered:
    return renderer.render(draft.plain_messages(), draft.plain_tools(), draft.spans())


def _outcome(
    request: AssemblyRequest,
    draft: Draft,
    fitted: Fitted,
    rendered: Rendered,
    manifest: ContextManifest,
    prepared: Prepared,
) -> Packet | HandOff:
    needed = len(rendered.token_ids)
    if needed <= request.budget:
        return Packet(
            messages=draft.plain_messages(),
            tools=draft.plain_tools(),
            spans=draft.spans(),
            manifest=manifest,
            carry=prepared.carry,
        )
    tokens = rendered.tokens_by_item()
    tokens.pop(FRAMING)
    largest = sorted(tokens.items(), key=lambda pair: (-pair[1], pair[0]))[:_LARGEST_SHOWN]
    reason = (
        HandOffReason.REQUIRED_EXCEEDS_BUDGET if fitted.overflow > 0 else HandOffReason.FAULT_EXCEEDS_BUDGET
    )
    return HandOff(
        reason=reason,
        budget=request.budget,
        needed=needed,
        shortfall=needed - request.budget,
        largest=tuple(LargestItem(id=item_id, tokens=count) for item_id, count in largest),
        manifest=manifest,
    )
