"""`ablations`: the request again without one layer or one kind, one at a time."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from serving.assembler.gates import in_scope
from serving.assembler.items import ContextItem
from serving.assembler.kinds import Kind, Layer
from serving.assembler.record import Record
from serving.assembler.request import AssemblyRequest


class AblateBy(StrEnum):
    """What is left out as one."""

    LAYER = "layer"
    KIND = "kind"


class Ablation(Record):
    """A request without one layer or kind, and what that did; ids are sorted."""

    by: AblateBy
    name: str
    """Of the layer or kind."""
    removed: tuple[str, ...]
    required_removed: tuple[str, ...]
    """Those of `removed` that no assembly would have dropped by itself."""
    required_kept: tuple[str, ...]
    """Those of the layer or kind that stayed, because they are required."""
    revived: tuple[str, ...]
    """Items that only a removed one superseded: they come back, which is a second difference."""
    request: AssemblyRequest


def ablations(
    request: AssemblyRequest, by: AblateBy = AblateBy.LAYER, *, remove_required: bool = False
) -> tuple[Ablation, ...]:
    """One ablation for every layer or kind that occurs in scope, in the fixed order of layers or kinds.

    A required item stays and is reported, unless `remove_required`; the whole history counts as required, as
    it does in an assembly. An ablation that removes nothing is reported too, its request unchanged. Items
    out of scope are left alone and named nowhere.
    """
    names: Iterable[Layer | Kind] = Layer if by is AblateBy.LAYER else Kind
    seen = [item for item in _all(request) if in_scope(item, request.context)]
    found = ((name, [item for item in seen if _group(item, by) is name]) for name in names)
    return tuple(_without(request, by, name, group, remove_required) for name, group in found if group)


def _without(
    request: AssemblyRequest,
    by: AblateBy,
    name: Layer | Kind,
    group: list[ContextItem],
    remove_required: bool,
) -> Ablation:
    history = {item.id for item in request.history}
    required = {item.id for item in group if item.is_required or item.id in history}
    gone = {item.id for item in group if remove_required or item.id not in required}

    def kept(items: tuple[ContextItem, ...]) -> tuple[ContextItem, ...]:
        return tuple(item for item in items if item.id not in gone or not in_scope(item, request.context))

    rest = request.model_copy(
        update={
            "candidates": kept(request.candidates),
            "history": kept(request.history),
            "tools": kept(request.tools),
        }
    )
    return Ablation(
        by=by,
        name=name.value,
        removed=tuple(sorted(gone)),
        required_removed=tuple(sorted(required & gone)),
        required_kept=tuple(sorted(required - gone)),
        revived=tuple(sorted((_superseded(request) - _superseded(rest)) - gone)),
        request=rest,
    )


def _superseded(request: AssemblyRequest) -> set[str]:
    """Ids of present items in scope that another one in scope supersedes; history is never superseded."""
    seen = [item for item in _all(request) if in_scope(item, request.context)]
    targets = {target for item in seen for target in item.supersedes}
    return targets & ({item.id for item in seen} - {item.id for item in request.history})


def _all(request: AssemblyRequest) -> tuple[ContextItem, ...]:
    return (*request.candidates, *request.history, *request.tools)


def _group(item: ContextItem, by: AblateBy) -> Layer | Kind:
    return item.layer if by is AblateBy.LAYER else item.kind
