"""From an incident to a regression: a recorded packet that went wrong becomes cases that a policy must pass.

The incident's own case fails under the rules that caused it and passes under the new ones. Its neighbours are
the same request with one thing changed, so that rules which block or let in too much fail as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from serving.assembler.assemble import assemble
from serving.assembler.expectation import Case, Expectation, Expected, Standing, Violation, violations
from serving.assembler.items import ContextItem
from serving.assembler.manifest import ContextManifest, DropReason
from serving.assembler.neighbours import Neighbourhood, neighbours
from serving.assembler.packet import Packet
from serving.assembler.policy import ContextPolicy
from serving.assembler.record import Record
from serving.assembler.renderer import Renderer
from serving.assembler.replay import Verdict, replay
from serving.assembler.request import AssemblyRequest
from serving.errors import UsageError

INCIDENT_CASE: Final = "incident"


class IncidentClass(StrEnum):
    """What went wrong."""

    WRONG_POLICY = "wrong_policy"
    """The policy took an item in or left it out against the deployment's intent."""
    MISSING_CONSTRAINT = "missing_constraint"
    STALE_RETRIEVAL = "stale_retrieval"
    PERMISSION_LEAK = "permission_leak"
    POISONED_DOCUMENT = "poisoned_document"
    MEMORY_CONTAMINATION = "memory_contamination"
    TOOL_OUTPUT_OVERFLOW = "tool_output_overflow"
    """Raw output took the room of what the decision needs, or left no packet at all."""
    LOSSY_COMPACTION = "lossy_compaction"
    """A summary lost what had to survive it."""


class _Cure(NamedTuple):
    """What counts as cured: the critical item is in, or it is out without a trace or for one of these reasons."""

    selected: bool
    reasons: frozenset[DropReason] = frozenset()
    summary_will_do: bool = False
    """Whether the item may also be compacted, as long as the words that matter are said."""


_WORTH: Final = frozenset(
    {DropReason.UTILITY_NOT_POSITIVE, DropReason.SUPERSEDED, DropReason.CONDITION_FALSE}
)
_TOOL: Final = frozenset({DropReason.TOOL_NOT_ALLOWED, DropReason.TOOL_NOT_IN_STAGE})
_MEMORY: Final = frozenset({DropReason.MEMORY_PURPOSE, DropReason.MEMORY_EXPIRED, DropReason.MEMORY_SOURCE})
_KEPT_IN: Final = _Cure(selected=True)
_KEPT_OUT: Final = _Cure(selected=False, reasons=_WORTH | _TOOL | _MEMORY)

_CURES: Final[Mapping[IncidentClass, _Cure]] = MappingProxyType(
    {
        IncidentClass.MISSING_CONSTRAINT: _KEPT_IN,
        IncidentClass.STALE_RETRIEVAL: _Cure(selected=False, reasons=_WORTH),
        # A document that one may not read leaves no trace; a tool that one may not use does.
        IncidentClass.PERMISSION_LEAK: _Cure(selected=False, reasons=_TOOL),
        IncidentClass.POISONED_DOCUMENT: _Cure(selected=False, reasons=_WORTH),
        IncidentClass.MEMORY_CONTAMINATION: _Cure(selected=False, reasons=_WORTH | _MEMORY),
        IncidentClass.TOOL_OUTPUT_OVERFLOW: _KEPT_IN,
        IncidentClass.LOSSY_COMPACTION: _Cure(selected=True, summary_will_do=True),
    }
)
"""Lack of room is no cure of any: it depends on what else was there."""


class Regression(Record):
    """An incident as cases; `cases` starts with the incident's own."""

    classification: IncidentClass
    critical: str
    """Id of the item that must be in, or must not be."""
    manifest: ContextManifest
    """Of the packet that went wrong."""
    request: AssemblyRequest
    """That it was built from."""
    old_policy: ContextPolicy
    new_policy: ContextPolicy
    cases: tuple[Case, ...]

    def _problem(self) -> str | None:
        if not self.cases or self.cases[0].name != INCIDENT_CASE:
            return f"its first case is called '{INCIDENT_CASE}'"
        names = [case.name for case in self.cases]
        return "every case has its own name" if len(set(names)) < len(names) else None


class CaseResult(Record):
    """One case under the policy that was checked."""

    name: str
    violations: tuple[Violation, ...]


class RegressionReport(Record):
    """Whether the incident is still recognised and every case passes."""

    recognised: bool
    """The old rules still fail the incident's case; if not, the fixture proves nothing any more."""
    cases: tuple[CaseResult, ...]

    @property
    def passed(self) -> bool:
        """Recognised, and no case is violated."""
        return self.recognised and not any(case.violations for case in self.cases)


def build_regression(
    *,
    manifest: ContextManifest,
    request: AssemblyRequest,
    old_policy: ContextPolicy,
    new_policy: ContextPolicy,
    renderer: Renderer,
    classification: IncidentClass,
    critical: str,
    corrected: AssemblyRequest | None = None,
    keep: Iterable[str] = (),
    says: Iterable[str] = (),
) -> Regression:
    """The regression of one incident; what is built has been checked and passes.

    `critical` is the id of the item that the incident is about. `corrected` is the request as the repaired
    intake hands it in, where the cure is a label (a scope, a version, a memory's source) or an item that was
    lost, and not a choice of the policy; it may not buy room. `keep` names what must stay in as well, `says`
    gives words that must be sent: after a lossy compaction those of the lost constraint, which a good summary
    repeats.

    Raises `UsageError` when the record does not replay exactly, when the old rules pass already, and when the
    new ones fail, by leaving the critical item out merely for lack of room too, or fail a neighbour.
    """
    _check_record(manifest, request, old_policy, renderer)
    after = request if corrected is None else _checked(corrected, request)
    item = _item(after, critical)
    cure = _cure(classification, manifest, critical, after)
    words = tuple(says)
    own = _expected(after, new_policy, renderer, critical, cure, says=bool(words))
    kept = (Expected(id=item_id, standing=Standing.SELECTED) for item_id in sorted(set(keep)))
    expectation = Expectation(items=(own, *kept), says=words)
    if not violations(request, old_policy, renderer, expectation):
        raise UsageError(
            f"The old policy '{old_policy.name}' passes this case already, so it is no regression of it; name "
            "another critical item or class."
        )
    near = Neighbourhood(after, item, own)
    cases = (
        Case(name=INCIDENT_CASE, about="What happened.", request=after, expectation=expectation),
        *neighbours(near),
    )
    for case in cases:
        if broken := violations(case.request, new_policy, renderer, case.expectation):
            raise UsageError(
                f"The new policy '{new_policy.name}' fails the case '{case.name}' ({case.about.rstrip('.')}): "
                f"{broken[0]}; change the policy or the corrected request."
            )
    return Regression(
        classification=classification,
        critical=critical,
        manifest=manifest,
        request=request,
        old_policy=old_policy,
        new_policy=new_policy,
        cases=cases,
    )


def check_regression(
    regression: Regression, renderer: Renderer, policy: ContextPolicy | None = None
) -> RegressionReport:
    """All cases under `policy`, by default under the one that cured the incident."""
    own = regression.cases[0].expectation
    return RegressionReport(
        recognised=bool(violations(regression.request, regression.old_policy, renderer, own)),
        cases=tuple(
            CaseResult(
                name=case.name,
                violations=violations(
                    case.request, policy or regression.new_policy, renderer, case.expectation
                ),
            )
            for case in regression.cases
        ),
    )


def _check_record(
    manifest: ContextManifest, request: AssemblyRequest, policy: ContextPolicy, renderer: Renderer
) -> None:
    found = replay(manifest, request=request, policy=policy, renderer=renderer)
    if found.verdict is not Verdict.EXACT:
        reasons = ", ".join(reason.value for reason in found.reasons)
        raise UsageError(
            f"Expected a record that replays exactly, but this one is {found.verdict.value} ({reasons}); what "
            "cannot be built again cannot be tested."
        )


def _checked(corrected: AssemblyRequest, request: AssemblyRequest) -> AssemblyRequest:
    for name in ("window", "max_output", "overhead"):
        if getattr(corrected, name) != getattr(request, name):
            raise UsageError(
                f"The corrected request must keep the room of the recorded one, but its {name} is "
                f"{getattr(corrected, name)} instead of {getattr(request, name)}."
            )
    for name in ("tenant", "actor", "now"):
        if getattr(corrected.context, name) != getattr(request.context, name):
            raise UsageError(
                f"The corrected request must be of the same tenant, actor and time, but its {name} differs."
            )
    return corrected


def _item(request: AssemblyRequest, item_id: str) -> ContextItem:
    for item in (*request.candidates, *request.history, *request.tools):
        if item.id == item_id:
            return item
    raise UsageError(
        f"Expected the id of an item in the request, but '{item_id}' is none; a cure that merely takes the item "
        "out of the request cannot be tested."
    )


def _cure(
    classification: IncidentClass, manifest: ContextManifest, critical: str, after: AssemblyRequest
) -> _Cure:
    if classification is IncidentClass.WRONG_POLICY:
        sent = manifest.budget.used <= manifest.budget.budget
        was_in = sent and critical in {item.id for item in manifest.selected}
        return _KEPT_OUT if was_in else _KEPT_IN
    cure = _CURES[classification]
    is_tool = critical in {item.id for item in after.tools}
    if classification is IncidentClass.PERMISSION_LEAK and not is_tool:
        return cure._replace(reasons=frozenset())
    return cure


def _expected(
    after: AssemblyRequest,
    policy: ContextPolicy,
    renderer: Renderer,
    critical: str,
    cure: _Cure,
    *,
    says: bool,
) -> Expected:
    """What the new rules make of the critical item, if that is a cure; it is pinned with its reason."""
    selected = Expected(id=critical, standing=Standing.SELECTED)
    if cure.selected and not (cure.summary_will_do and says):
        return selected
    outcome = assemble(after, policy, renderer)
    reason = next((item.reason for item in outcome.manifest.dropped if item.id == critical), None)
    if cure.selected:
        compacted = Expected(id=critical, standing=Standing.DROPPED, reason=DropReason.COMPACTED)
        return compacted if reason is DropReason.COMPACTED else selected
    if not isinstance(outcome, Packet):
        raise UsageError(
            f"The new policy '{policy.name}' fails the case '{INCIDENT_CASE}': expected a packet, got a hand-off "
            f"{outcome.shortfall} tokens short; change the policy or the corrected request."
        )
    if reason is not None and reason not in cure.reasons:
        luck = ", which depends on what else was there" if reason is DropReason.NO_ROOM else ""
        raise UsageError(
            f"The new policy '{policy.name}' leaves {critical} out, but for {reason.value}{luck}; expected "
            f"{_words(cure)}."
        )
    if critical in {item.id for item in outcome.manifest.selected}:
        raise UsageError(
            f"The new policy '{policy.name}' still lets {critical} in; expected {_words(cure)}; change the "
            "policy or the corrected request."
        )
    standing = Standing.ABSENT if reason is None else Standing.DROPPED
    return Expected(id=critical, standing=standing, reason=reason)


def _words(cure: _Cure) -> str:
    reasons = sorted(reason.value for reason in cure.reasons)
    return " or ".join(["no trace of it", *reasons])
