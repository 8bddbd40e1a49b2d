"""Writes the manifest of one assembly: every number in it is counted on what is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from serving.assembler.compaction import Compaction, CompactionPlan, NoCompaction
from serving.assembler.draft import Draft
from serving.assembler.faults import Fault, fault_records
from serving.assembler.gates import Drop, MemoryStanding, memory_standing
from serving.assembler.items import ContextItem
from serving.assembler.kinds import Kind, Layer
from serving.assembler.lint import cache_keys
from serving.assembler.manifest import (
    BarRecord,
    BudgetUse,
    CompactionRecord,
    CompactionVerdict,
    ContextManifest,
    DroppedItem,
    HistoryRange,
    InertMark,
    LimitsLeft,
    MaskingRecord,
    MaskRecord,
    MemoryUse,
    MissingRecord,
    OpenCall,
    RetrievalRecord,
    SelectedItem,
    ToolRecord,
)
from serving.assembler.messages import FRAMING
from serving.assembler.payloads import Memory, ToolContract, ToolStep
from serving.assembler.policy import ContextPolicy
from serving.assembler.prepare import Prepared
from serving.assembler.record import digest
from serving.assembler.renderer import Rendered, RendererIdentity
from serving.assembler.request import AssemblyRequest
from serving.assembler.utility import Terms
from serving.errors import LabError


@dataclass(frozen=True, slots=True)
class Assembly:
    """All that happened in one assembly."""

    request: AssemblyRequest
    policy: ContextPolicy
    renderer: RendererIdentity
    selected: tuple[ContextItem, ...]
    dropped: tuple[Drop, ...]
    worth: Mapping[str, float]
    expected: Mapping[str, int]
    rendered: Rendered
    renders: int
    draft: Draft
    faults: tuple[Fault, ...]
    originals: Mapping[str, ContextItem]
    """The log as it was handed in, by id, as far as it is in scope: its hashes are what is recorded."""
    prepared: Prepared
    compaction: CompactionPlan | NoCompaction | None
    inert: Mapping[str, Counter[str]]


def describe(assembly: Assembly) -> ContextManifest:
    """The manifest of `assembly`; `LabError` where the rendered spans do not add up."""
    request, policy = assembly.request, assembly.policy
    tokens = assembly.rendered.tokens_by_item()
    sent_history = {item.id for item in request.history} & {item.id for item in assembly.selected}
    selected = tuple(
        _selected(
            item, assembly, tokens.get(item.id, 0), required=item.is_required or item.id in sent_history
        )
        for item in assembly.selected
    )
    if sum(item.tokens for item in selected) + tokens[FRAMING] != len(assembly.rendered.token_ids):
        strangers = sorted(tokens.keys() - {item.id for item in selected} - {FRAMING})
        raise LabError(
            f"Every token belongs to a selected item or to {FRAMING}, but the renderer named "
            f"{strangers[:3]}; this is a defect of the renderer."
        )
    history = [item.id for item in request.history if item.id in sent_history]
    known = [*assembly.selected, *(drop.item for drop in assembly.dropped)]
    limits = request.state.limits
    return ContextManifest(
        request_id=request.request_id,
        run_id=request.run_id,
        step_id=request.step_id,
        tenant=request.context.tenant,
        surface=request.surface,
        decision=request.decision,
        timestamp=request.context.now,
        policy_name=policy.name,
        policy_version=policy.version,
        policy_sha256=policy.digest(),
        renderer=assembly.renderer,
        budget=_budget(assembly, tokens[FRAMING]),
        tokens_by_layer=_by_layer(selected),
        selected=selected,
        dropped=tuple(
            _dropped(drop, assembly) for drop in sorted(assembly.dropped, key=lambda drop: drop.item.id)
        ),
        tools=tuple(
            _tool(item.id, item.payload)
            for item in assembly.selected
            if item.id not in sent_history and isinstance(item.payload, ToolContract)
        ),
        memory=_memory(assembly.selected),
        history=HistoryRange(
            first=history[0] if history else None, last=history[-1] if history else None, count=len(history)
        ),
        open_calls=tuple(
            OpenCall(item_id=item.id, call_id=call_id)
            for item in assembly.selected
            if isinstance(item.payload, ToolStep)
            for call_id in item.payload.open_calls
        ),
        limits=LimitsLeft(attempts=limits.attempts_left(), seconds=limits.seconds_left(request.context.now)),
        missing=tuple(
            MissingRecord(layer=gap.layer, source=gap.source, reason=gap.reason) for gap in request.missing
        ),
        retrieval=(
            RetrievalRecord(query_sha256=request.retrieval.query_sha256, filters=request.retrieval.filters)
            if request.retrieval
            else None
        ),
        cache_keys=cache_keys(item for item in known if item.id not in sent_history),
        faults=fault_records(assembly.faults),
        packet_sha256=packet_digest(assembly.draft),
        masking=_masking(assembly.prepared),
        compactions=tuple(_compaction(done) for done in assembly.prepared.compactions),
        compaction=_verdict(assembly.compaction),
        status_bar=_status_bar(assembly),
        inert_marks=tuple(
            InertMark(item_id=item_id, mark=mark, count=count)
            for item_id, marks in sorted(assembly.inert.items())
            for mark, count in sorted(marks.items())
        ),
    )


def packet_digest(draft: Draft) -> str:
    """SHA-256 over messages and tools as sent, key order included: equal packets, equal hash."""
    messages = ",".join(message.model_dump_json() for message in draft.plain_messages())
    tools = ",".join(tool.model_dump_json() for tool in draft.plain_tools())
    return digest(f"[[{messages}],[{tools}]]")


def _masking(prepared: Prepared) -> MaskingRecord | None:
    plan = prepared.masking
    if plan is None:
        return None
    return MaskingRecord(
        masks=tuple(
            MaskRecord(
                owner=mask.owner,
                reason=mask.reason,
                content_sha256=mask.content_sha256,
                text_sha256=digest(mask.text),
                tokens_before=mask.tokens_before,
                tokens_after=mask.tokens_after,
            )
            for mask in plan.masks
        ),
        tokens_before=plan.tokens_before,
        tokens_after=plan.tokens_after,
    )


def _compaction(done: Compaction) -> CompactionRecord:
    read = [call.prompt_tokens for call in done.calls]
    written = [call.output_tokens for call in done.calls]
    return CompactionRecord(
        id=done.id,
        strategy=done.strategy,
        strategy_version=done.strategy_version,
        policy_version=done.policy_version,
        summaries=tuple(item.id for item in done.items),
        covers=tuple(covered.id for covered in done.covers),
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
        calls=len(done.calls),
        prompt_tokens=_sum_if_known(read),
        output_tokens=_sum_if_known(written),
    )


def _sum_if_known(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _verdict(due: CompactionPlan | NoCompaction | None) -> CompactionVerdict | None:
    match due:
        case CompactionPlan():
            return CompactionVerdict(plan_id=due.id, reason=None)
        case NoCompaction():
            return CompactionVerdict(plan_id=None, reason=due.reason)
        case _:
            return None


def _status_bar(assembly: Assembly) -> BarRecord | None:
    bar, policy = assembly.prepared.bar, assembly.policy.status_bar
    if bar is None or policy is None:
        return None
    latest = [item.id for item in assembly.selected if item.kind is Kind.STATUS_BAR][-1]
    return BarRecord(item_id=latest, mode=policy.mode, answers=bar.answers)


def _selected(item: ContextItem, assembly: Assembly, tokens: int, *, required: bool) -> SelectedItem:
    return SelectedItem(**_shared(item, assembly), required=required, tokens=tokens)


def _dropped(drop: Drop, assembly: Assembly) -> DroppedItem:
    tokens = assembly.expected.get(drop.item.id, drop.item.tokens)
    return DroppedItem(**_shared(drop.item, assembly), reason=drop.reason, tokens=tokens)


def _shared(item: ContextItem, assembly: Assembly) -> _Shared:
    """The fields of `ItemRecord`; a dict, because a record made only to be copied is checked twice."""
    return {
        "id": item.id,
        "kind": item.kind,
        "layer": item.layer,
        "owner": item.owner,
        "source": item.source,
        "version": item.version,
        "sha256": assembly.originals.get(item.id, item).sha256,
        "terms": item.terms,
        "utility": assembly.worth[item.id],
    }


class _Shared(TypedDict):
    id: str
    kind: Kind
    layer: Layer
    owner: str
    source: str
    version: str | None
    sha256: str
    terms: Terms
    utility: float


def _budget(assembly: Assembly, framing: int) -> BudgetUse:
    request, used = assembly.request, len(assembly.rendered.token_ids)
    return BudgetUse(
        window=request.window,
        max_output=request.max_output,
        overhead=request.overhead,
        budget=request.budget,
        used=used,
        framing=framing,
        unused=max(0, request.budget - used),
        renders=assembly.renders,
    )


def _by_layer(selected: tuple[SelectedItem, ...]) -> dict[Layer, int]:
    sums = {layer: sum(item.tokens for item in selected if item.layer is layer) for layer in Layer}
    return {layer: tokens for layer, tokens in sums.items() if tokens}


def _tool(item_id: str, contract: ToolContract) -> ToolRecord:
    return ToolRecord(
        id=item_id,
        name=contract.spec.name,
        authority=contract.authority,
        schema_sha256=digest(contract.spec.model_dump_json()),
    )


def _memory(items: tuple[ContextItem, ...]) -> MemoryUse:
    standings = [
        (item.id, memory_standing(item.payload)) for item in items if isinstance(item.payload, Memory)
    ]
    return MemoryUse(
        facts=tuple(item_id for item_id, standing in standings if standing is MemoryStanding.FACT),
        hypotheses=tuple(item_id for item_id, standing in standings if standing is MemoryStanding.HYPOTHESIS),
    )
