"""The neighbours of an incident: its request with one thing changed, each with what must then hold.

Where the cure keeps an item out, a harmless twin of it must come in; where it keeps one in, the same item must
stay out once it is replaced, conditional, dangerous or somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from serving.assembler.carry import Carry
from serving.assembler.expectation import Case, Expectation, Expected, Standing
from serving.assembler.items import Classification, Condition, ContextItem, Scope
from serving.assembler.kinds import Kind, Stage
from serving.assembler.manifest import DropReason
from serving.assembler.payloads import Authority, Memory, ToolContract, ToolStep
from serving.assembler.request import AssemblyRequest
from serving.assembler.utility import Terms

_OPTIONAL_KNOWLEDGE: Final = frozenset({Kind.EVIDENCE, Kind.MEMORY, Kind.EXAMPLE})
_RESIDUE: Final = 0.05
"""What scorers find in harmless items too: a policy that cannot bear it blocks everything."""
_USEFUL: Final = 0.5
"""Relevance times authority from which on a twin keeps those of its model."""
_FRAMING_ROOM: Final = 1_000
"""Tokens for the template text and fences around an added item."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The cured request, its critical item, and what is expected of that item."""

    request: AssemblyRequest
    item: ContextItem
    expected: Expected


def neighbours(near: Neighbourhood) -> tuple[Case, ...]:
    """All neighbours that make sense for the kind and place of the critical item, in a fixed order."""
    if near.expected.reason is DropReason.COMPACTED:
        rest = _compacted(near)
    elif near.expected.standing is Standing.SELECTED:
        rest = _kept_in(near)
    else:
        rest = _kept_out(near)
    return (*_out_of_scope(near), *rest)


def _out_of_scope(near: Neighbourhood) -> Iterator[Case]:
    context, scope = near.request.context, near.item.scope
    changes: list[tuple[str, str, dict[str, object]]] = [
        ("another_tenant", "The item is of a tenant with a similar name.", {"tenant": f"{context.tenant}1"}),
        ("permission_unknown", "Whether it may be read could not be found out.", {"lookup_failed": True}),
        ("no_longer_holds", "It ended at the moment of the request.", {"effective_until": context.now}),
    ]
    for name, about, update in changes:
        changed = near.item.model_copy(update={"scope": scope.model_copy(update=update)})
        yield _case(name, about, _with(near.request, changed), _is(near.item.id, Standing.ABSENT))


def _kept_out(near: Neighbourhood) -> Iterator[Case]:
    item, free = near.item, _with_room(_unreplaced(near.request, near.item.id), near.item)
    good = _harmless(item, near.request)
    free = _tool_free(free, item)
    yield _case(
        "harmless", "Nothing is wrong with the item.", _with(free, good), _is(item.id, Standing.SELECTED)
    )
    if not isinstance(item.payload, ToolContract) and item.id not in _ids(near.request.history):
        twin = good.model_copy(update={"id": f"{item.id}-twin"})
        both = _with_room(near.request, item)
        yield _case(
            "beside_harmless",
            "A harmless item of the same kind stands beside it.",
            both.model_copy(update={"candidates": (*both.candidates, twin)}),
            near.expected,
            _is(twin.id, Standing.SELECTED),
        )
    if near.expected.standing is Standing.ABSENT:
        yield _case(
            "allowed_reader",
            "Somebody asks who may read it.",
            _with_room(_asked_by_a_reader(near), item),
            _is(item.id, Standing.SELECTED),
        )
    if isinstance(good.payload, Memory):
        yield from _memory_cases(good, good.payload, free)


def _memory_cases(good: ContextItem, memory: Memory, request: AssemblyRequest) -> Iterator[Case]:
    now = request.context.now
    cases: list[tuple[str, str, dict[str, object], Expected]] = [
        (
            "memory_expired",
            "A sound memory expires at the moment of the request.",
            {"expires_at": now},
            _is(good.id, Standing.DROPPED, DropReason.MEMORY_EXPIRED),
        ),
        (
            "memory_not_yet_expired",
            "A sound memory expires a second later.",
            {"expires_at": now + timedelta(seconds=1)},
            _is(good.id, Standing.SELECTED),
        ),
        (
            "memory_of_another_purpose",
            "A sound memory was stored for something else.",
            {"purpose": f"{memory.purpose}1"},
            _is(good.id, Standing.DROPPED, DropReason.MEMORY_PURPOSE),
        ),
    ]
    for name, about, update, expected in cases:
        changed = good.model_copy(update={"payload": memory.model_copy(update=update)})
        yield _case(name, about, _with(request, changed), expected)


def _kept_in(near: Neighbourhood) -> Iterator[Case]:
    request, item = near.request, near.item
    if item.id not in _ids(request.history):
        conditional = item.model_copy(update={"condition": Condition(name="neighbour", holds=False)})
        yield _case(
            "condition_false",
            "Its condition does not hold.",
            _with(request, conditional),
            _is(item.id, Standing.DROPPED, DropReason.CONDITION_FALSE),
        )
    if item.id in _ids(request.candidates):
        newer = item.model_copy(update={"id": f"{item.id}-newer", "supersedes": (item.id,)})
        wide = _with_room(request, item)
        yield _case(
            "superseded",
            "A newer version replaces it.",
            wide.model_copy(update={"candidates": (*wide.candidates, newer)}),
            _is(item.id, Standing.DROPPED, DropReason.SUPERSEDED),
            _is(newer.id, Standing.SELECTED),
        )
        if item.kind in _OPTIONAL_KNOWLEDGE and not item.is_required:
            terms = item.terms.model_copy(update={"injection_risk": 1.0})
            yield _case(
                "dangerous",
                "The same item is an injection for certain.",
                _with(request, item.model_copy(update={"terms": terms})),
                _is(item.id, Standing.DROPPED, DropReason.UTILITY_NOT_POSITIVE),
            )
    steps = [one for one in request.history if isinstance(one.payload, ToolStep) and one.payload.results]
    # A compaction was made for the outputs as they were; with others it would not hold.
    if steps and not request.carry.compactions:
        short = request.model_copy(update={"carry": Carry()})
        for step in steps:
            short = _with(short, _short_output(step))
        yield _case(
            "short_outputs",
            "Every tool answered in two words.",
            short,
            near.expected,
            *(
                Expected(id=step.id, standing=Standing.SELECTED, verbatim=True)
                for step in steps
                if step.id != item.id
            ),
        )


def _compacted(near: Neighbourhood) -> Iterator[Case]:
    whole = near.request.model_copy(update={"carry": Carry()})
    for item in near.request.history:
        whole = _with_room(whole, item)
    yield _case(
        "before_compaction",
        "Nothing of the log was compacted.",
        whole,
        _is(near.item.id, Standing.SELECTED),
    )


def _harmless(item: ContextItem, request: AssemblyRequest) -> ContextItem:
    """The item with nothing left that a sound rule could have against it."""
    terms, context = item.terms, request.context
    useful = terms.relevance * terms.authority >= _USEFUL
    update: dict[str, object] = {
        "scope": Scope(tenant=None if item.scope.tenant is None else context.tenant),
        "terms": Terms(
            relevance=terms.relevance if useful else 1.0,
            authority=terms.authority if useful else 1.0,
            redundancy=min(terms.redundancy, _RESIDUE),
            injection_risk=min(terms.injection_risk, _RESIDUE),
        ),
        "condition": None,
    }
    if isinstance(item.payload, Memory):
        update["payload"] = item.payload.model_copy(
            update={
                "subject": context.subject or context.actor,
                "purpose": context.purpose,
                "source": "user_stated",
                "expires_at": None,
            }
        )
    if isinstance(item.payload, ToolContract):
        update["payload"] = item.payload.model_copy(update={"authority": Authority.READ, "stages": None})
    return item.model_copy(update=update)


def _tool_free(request: AssemblyRequest, item: ContextItem) -> AssemblyRequest:
    """The state at a stage that offers reading tools, this one by name among them."""
    if not isinstance(item.payload, ToolContract):
        return request
    state = request.state
    allowed = None if state.allowed_tools is None else state.allowed_tools | {item.payload.spec.name}
    stage = Stage.ANALYSIS if state.stage is Stage.ACTION else state.stage
    return request.model_copy(
        update={"state": state.model_copy(update={"allowed_tools": allowed, "stage": stage})}
    )


def _asked_by_a_reader(near: Neighbourhood) -> AssemblyRequest:
    """The request asked by whoever the item's scope names, at a time and under facets for which it holds."""
    item, scope, context = near.item, near.item.scope, near.request.context
    now = context.now
    if scope.effective_from is not None:
        now = max(now, scope.effective_from)
    if scope.effective_until is not None:
        now = min(now, scope.effective_until - timedelta(seconds=1))
    update: dict[str, object] = {
        "tenant": scope.tenant or context.tenant,
        "groups": context.groups | (scope.readers or frozenset()),
        "clearance": Classification.RESTRICTED,
        "facets": {
            **context.facets,
            **{name: min(values) for name, values in scope.applies_to.items() if values},
        },
        "now": now,
    }
    # Where nobody may read it there is no such reader; the nearest is one of a scope that could be found.
    found: dict[str, object] = {"lookup_failed": False, "readers": scope.readers or None}
    harmless = _harmless(item, near.request)
    readable = harmless.model_copy(update={"scope": scope.model_copy(update=found)})
    if isinstance(item.payload, Memory):
        update["subject"] = item.payload.subject
        subject = {"subject": item.payload.subject}
        readable = readable.model_copy(update={"payload": harmless.payload.model_copy(update=subject)})
    asked = near.request.model_copy(update={"context": context.model_copy(update=update)})
    return _with(_unreplaced(asked, item.id), readable)


def _short_output(step: ContextItem) -> ContextItem:
    if not isinstance(step.payload, ToolStep):
        return step
    results = tuple(
        result.model_copy(update={"content": f"ok {result.call_id}", "artifact_ref": None})
        for result in step.payload.results
    )
    return step.model_copy(update={"payload": step.payload.model_copy(update={"results": results})})


def _unreplaced(request: AssemblyRequest, item_id: str) -> AssemblyRequest:
    """Nothing supersedes the item any more."""

    def free(item: ContextItem) -> ContextItem:
        if item_id not in item.supersedes:
            return item
        return item.model_copy(
            update={"supersedes": tuple(target for target in item.supersedes if target != item_id)}
        )

    return _mapped(request, free)


def _with(request: AssemblyRequest, changed: ContextItem) -> AssemblyRequest:
    return _mapped(request, lambda item: changed if item.id == changed.id else item)


def _mapped(request: AssemblyRequest, change: Callable[[ContextItem], ContextItem]) -> AssemblyRequest:
    return request.model_copy(
        update={
            "candidates": tuple(map(change, request.candidates)),
            "history": tuple(map(change, request.history)),
            "tools": tuple(map(change, request.tools)),
        }
    )


def _with_room(request: AssemblyRequest, item: ContextItem) -> AssemblyRequest:
    """A window in which one more item like this fits for certain: a token is at least one byte."""
    room = max(item.tokens or 0, len(item.content_json.encode())) + _FRAMING_ROOM
    return request.model_copy(update={"window": request.window + room})


def _ids(items: tuple[ContextItem, ...]) -> frozenset[str]:
    return frozenset(item.id for item in items)


def _is(item_id: str, standing: Standing, reason: DropReason | None = None) -> Expected:
    return Expected(id=item_id, standing=standing, reason=reason)


def _case(name: str, about: str, request: AssemblyRequest, *items: Expected) -> Case:
    return Case(name=name, about=about, request=request, expectation=Expectation(items=items))
