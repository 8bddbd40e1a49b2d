"""What may enter at all, decided before anything is ranked, in one fixed order.

Scope first: what fails it leaves no trace in any output. Then memory, conditions, supersession and tools,
whose refusals are recorded with a reason, since the reader of a manifest may know these items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from serving.assembler.items import ContextItem, Scope
from serving.assembler.manifest import DropReason
from serving.assembler.payloads import Evidence, Memory, Note, ToolContract
from serving.assembler.request import AssemblyRequest, RequestContext
from serving.assembler.stages import stage_allows

FACT_SOURCES: Final = frozenset({"user_stated", "system_record"})
HYPOTHESIS_SOURCES: Final = frozenset({"model_inferred"})


class MemoryStanding(StrEnum):
    """What a loaded memory counts as."""

    FACT = "fact"
    HYPOTHESIS = "hypothesis"


@dataclass(frozen=True, slots=True)
class Drop:
    """An item that the reader may know of and that stays out."""

    item: ContextItem
    reason: DropReason


@dataclass(frozen=True, slots=True)
class Admitted:
    """What passed the gates; `history` keeps its order, the rest is sorted by id."""

    candidates: tuple[ContextItem, ...]
    history: tuple[ContextItem, ...]
    tools: tuple[ContextItem, ...]
    dropped: tuple[Drop, ...]


def in_scope(item: ContextItem, context: RequestContext) -> bool:
    """Tenant, ACL, classification and version eligibility; a failed look-up is a refusal.

    A memory of another subject is out of scope too: even its id would tell that it exists.
    """
    if isinstance(item.payload, Memory) and item.payload.subject != (context.subject or context.actor):
        return False
    return _scope_holds(item.scope, context)


def admit(
    request: AssemblyRequest, history: Sequence[ContextItem], others: Sequence[ContextItem]
) -> Admitted:
    """Run the gates after scope on items that passed it; `others` are candidates and tools.

    Supersession reaches candidates only: what stands in the history was sent and is not rewritten.
    """
    dropped: list[Drop] = []

    def keep(items: Iterable[ContextItem], reason_of: _Gate) -> list[ContextItem]:
        kept: list[ContextItem] = []
        for item in items:
            if (reason := reason_of(item, request)) is None:
                kept.append(item)
            else:
                dropped.append(Drop(item, reason))
        return kept

    # Id order makes everything below independent of the order in which the set was handed in.
    current = sorted(others, key=lambda item: item.id)
    for gate in (_memory_gate, _condition_gate):
        current = keep(current, gate)
    replaced_by = _replacements([*history, *current])
    superseded = [item for item in current if item.id in replaced_by]
    dropped.extend(Drop(item, DropReason.SUPERSEDED) for item in superseded)
    current = [item for item in current if item.id not in replaced_by]
    current.extend(_notes(superseded, replaced_by, present={item.id for item in current}))
    current = keep(current, _tool_gate)
    return Admitted(
        candidates=tuple(item for item in current if not isinstance(item.payload, ToolContract)),
        history=tuple(history),
        tools=tuple(item for item in current if isinstance(item.payload, ToolContract)),
        dropped=tuple(dropped),
    )


def memory_standing(memory: Memory) -> MemoryStanding | None:
    """A fact, a hypothesis, or None for a source that loads nothing."""
    if memory.source in FACT_SOURCES:
        return MemoryStanding.FACT
    return MemoryStanding.HYPOTHESIS if memory.source in HYPOTHESIS_SOURCES else None


_Gate = Callable[[ContextItem, AssemblyRequest], DropReason | None]


def _scope_holds(scope: Scope, context: RequestContext) -> bool:
    if scope.lookup_failed:
        return False
    if scope.tenant is not None and scope.tenant != context.tenant:
        return False
    if scope.readers is not None and not scope.readers & {context.actor, *context.groups}:
        return False
    if scope.classification > context.clearance:
        return False
    # A facet that the request does not name is unknown, and unknown applicability is not applicability.
    if any(context.facets.get(facet) not in values for facet, values in scope.applies_to.items()):
        return False
    if scope.effective_from is not None and context.now < scope.effective_from:
        return False
    return scope.effective_until is None or context.now < scope.effective_until


def _memory_gate(item: ContextItem, request: AssemblyRequest) -> DropReason | None:
    """Purpose, expiry, source, in this order; subject and tenant were checked with the scope."""
    memory = item.payload
    if not isinstance(memory, Memory):
        return None
    if memory.purpose != request.context.purpose:
        return DropReason.MEMORY_PURPOSE
    if memory.expires_at is not None and memory.expires_at <= request.context.now:
        return DropReason.MEMORY_EXPIRED
    return DropReason.MEMORY_SOURCE if memory_standing(memory) is None else None


def _condition_gate(item: ContextItem, request: AssemblyRequest) -> DropReason | None:
    return DropReason.CONDITION_FALSE if item.condition is not None and not item.condition.holds else None


def _tool_gate(item: ContextItem, request: AssemblyRequest) -> DropReason | None:
    contract = item.payload
    if not isinstance(contract, ToolContract):
        return None
    limits = request.state.limits
    if limits.attempts_left() == 0:
        return DropReason.NO_ATTEMPTS_LEFT
    if limits.seconds_left(request.context.now) == 0:
        return DropReason.DEADLINE_PASSED
    allowed = request.state.allowed_tools
    if allowed is not None and contract.spec.name not in allowed:
        return DropReason.TOOL_NOT_ALLOWED
    stage = request.state.stage
    if stage is not None and not stage_allows(contract, stage, request.state.approved_command):
        return DropReason.TOOL_NOT_IN_STAGE
    return None


def _replacements(items: Sequence[ContextItem]) -> dict[str, ContextItem]:
    """For every superseded id, the item that replaces it: of several, the one with the lowest id."""
    replaced_by: dict[str, ContextItem] = {}
    for item in sorted(items, key=lambda item: item.id):
        for target in item.supersedes:
            replaced_by.setdefault(target, item)
    return replaced_by


def _notes(
    superseded: Sequence[ContextItem], replaced_by: Mapping[str, ContextItem], present: Set[str]
) -> list[ContextItem]:
    """A note for every superseded piece of knowledge; a replaced rule or tool needs none."""
    return [
        _superseded_note(item, replaced_by[item.id])
        for item in superseded
        # A note that the caller wrote himself is the better one.
        if isinstance(item.payload, Evidence | Memory) and superseded_note_id(item.id) not in present
    ]


def _superseded_note(item: ContextItem, by: ContextItem) -> ContextItem:
    """The short item that stands for a superseded one: which, by what, and why, without its text."""
    reason = f": {by.supersedes_reason}" if by.supersedes_reason else ""
    return ContextItem(
        id=superseded_note_id(item.id),
        payload=Note(text=f"{_named(item)} is superseded by {_named(by)}{reason}"),
        layer=item.layer,
        # The reason may quote a document, so the note is no more trustworthy than the item that gave it.
        trust=by.trust,
        owner="assembler",
        source=by.id,
        scope=item.scope,
    )


def superseded_note_id(item_id: str) -> str:
    """The id of the note that stands for a superseded item."""
    return f"{item_id}_superseded_note"


def _named(item: ContextItem) -> str:
    return f"{item.id} (version {item.version})" if item.version else item.id
