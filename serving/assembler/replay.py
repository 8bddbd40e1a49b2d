"""`replay`: build a recorded packet again and say how far the result can be trusted to be the old one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from serving.assembler.assemble import assemble
from serving.assembler.diff import ManifestDiff, diff
from serving.assembler.faults import Fault, fault_records
from serving.assembler.gates import in_scope, superseded_note_id
from serving.assembler.kinds import Kind
from serving.assembler.manifest import ASSEMBLER_VERSION, ContextManifest, DropReason, FaultRecord
from serving.assembler.policy import ContextPolicy
from serving.assembler.record import Record
from serving.assembler.renderer import Renderer
from serving.assembler.request import AssemblyRequest
from serving.errors import LabError


class Verdict(StrEnum):
    """How much of the record a replay brought back."""

    EXACT = "exact"
    """The same manifest id and packet hash: the packet is the one that was sent."""
    PARTIAL = "partial"
    """Something the record was made of is not stored any more; `missing` says what."""
    HISTORICAL = "historical"
    """All of it is stored, but what builds packets is not what it was: the old packet can be read, not
    rebuilt."""


class ReplayReason(StrEnum):
    """Why the verdict is not `exact`."""

    SNAPSHOT_MISSING = "snapshot_missing"
    ITEM_CHANGED = "item_changed"
    POLICY_CHANGED = "policy_changed"
    RENDERER_CHANGED = "renderer_changed"
    FAULTS_CHANGED = "faults_changed"
    ASSEMBLER_CHANGED = "assembler_changed"
    """Recorded by an assembler of another version."""
    REFUSED = "refused"
    """The assembler does not accept the stored request; `detail` is its sentence."""
    MANIFEST_DIFFERS = "manifest_differs"
    PACKET_DIFFERS = "packet_differs"


class Snapshot(StrEnum):
    """What a record is made of."""

    REQUEST = "request"
    POLICY = "policy"
    RENDERER = "renderer"
    ITEM = "item"
    FAULT = "fault"


class MissingSnapshot(Record):
    """One part that is not stored; `name` is an item's id, a fault's name, or what the manifest calls it."""

    snapshot: Snapshot
    name: str


class Replay(Record):
    """The verdict and its grounds; what could not be built again is None."""

    verdict: Verdict
    reasons: tuple[ReplayReason, ...]
    missing: tuple[MissingSnapshot, ...]
    changed_items: tuple[str, ...]
    manifest_id: str
    replayed_manifest_id: str | None
    packet_sha256: str
    replayed_packet_sha256: str | None
    diff: ManifestDiff | None
    """From the record to the replay."""
    detail: str | None = None


def replay(
    manifest: ContextManifest,
    *,
    request: AssemblyRequest | None,
    policy: ContextPolicy | None,
    renderer: Renderer | None,
    faults: Sequence[Fault] = (),
) -> Replay:
    """Assemble the stored `request` again and compare it with `manifest`; None is a part that is gone.

    With request, policy and renderer the packet is always built, also where items or faults are gone, so
    that the diff shows what they were worth. Raises `LabError` for a renderer or fault that breaks its
    promise, and never for a request that the assembler refuses.
    """
    missing = _missing(manifest, request, policy, renderer, faults)
    changed = _changed_items(manifest, request)
    reasons: set[ReplayReason] = set()
    if missing:
        reasons.add(ReplayReason.SNAPSHOT_MISSING)
    if changed:
        reasons.add(ReplayReason.ITEM_CHANGED)
    if policy is not None and policy.digest() != manifest.policy_sha256:
        reasons.add(ReplayReason.POLICY_CHANGED)
    if renderer is not None and renderer.identity != manifest.renderer:
        reasons.add(ReplayReason.RENDERER_CHANGED)
    given = fault_records(faults)
    if given != manifest.faults and not _absent_faults(manifest.faults, given):
        reasons.add(ReplayReason.FAULTS_CHANGED)
    if manifest.assembler_version != ASSEMBLER_VERSION:
        reasons.add(ReplayReason.ASSEMBLER_CHANGED)
    rebuilt: ContextManifest | None = None
    detail: str | None = None
    if request is not None and policy is not None and renderer is not None:
        try:
            rebuilt = assemble(request, policy, renderer, faults).manifest
        except LabError as error:
            if error.exit_code != 2:
                raise
            reasons.add(ReplayReason.REFUSED)
            detail = str(error)
    if rebuilt is not None and rebuilt.manifest_id != manifest.manifest_id:
        reasons.add(ReplayReason.MANIFEST_DIFFERS)
    if rebuilt is not None and rebuilt.packet_sha256 != manifest.packet_sha256:
        reasons.add(ReplayReason.PACKET_DIFFERS)
    return Replay(
        verdict=_verdict(reasons),
        reasons=tuple(reason for reason in ReplayReason if reason in reasons),
        missing=missing,
        changed_items=changed,
        manifest_id=manifest.manifest_id,
        replayed_manifest_id=rebuilt.manifest_id if rebuilt is not None else None,
        packet_sha256=manifest.packet_sha256,
        replayed_packet_sha256=rebuilt.packet_sha256 if rebuilt is not None else None,
        diff=diff(manifest, rebuilt) if rebuilt is not None else None,
        detail=detail,
    )


def _verdict(reasons: set[ReplayReason]) -> Verdict:
    if not reasons:
        return Verdict.EXACT
    return Verdict.PARTIAL if ReplayReason.SNAPSHOT_MISSING in reasons else Verdict.HISTORICAL


def _missing(
    manifest: ContextManifest,
    request: AssemblyRequest | None,
    policy: ContextPolicy | None,
    renderer: Renderer | None,
    faults: Sequence[Fault],
) -> tuple[MissingSnapshot, ...]:
    missing: list[MissingSnapshot] = []
    if request is None:
        missing.append(MissingSnapshot(snapshot=Snapshot.REQUEST, name=manifest.request_id or "request"))
    if policy is None:
        missing.append(MissingSnapshot(snapshot=Snapshot.POLICY, name=manifest.policy_name))
    if renderer is None:
        missing.append(MissingSnapshot(snapshot=Snapshot.RENDERER, name=manifest.renderer.dialect))
    if request is not None:
        gone = _recorded(manifest).keys() - _stored(request).keys()
        missing.extend(MissingSnapshot(snapshot=Snapshot.ITEM, name=item_id) for item_id in sorted(gone))
    missing.extend(
        MissingSnapshot(snapshot=Snapshot.FAULT, name=name)
        for name in _absent_faults(manifest.faults, fault_records(faults))
    )
    return tuple(missing)


def _absent_faults(recorded: Sequence[FaultRecord], given: Sequence[FaultRecord]) -> tuple[str, ...]:
    absent = Counter(fault.name for fault in recorded) - Counter(fault.name for fault in given)
    return tuple(sorted(absent.elements()))


def _changed_items(manifest: ContextManifest, request: AssemblyRequest | None) -> tuple[str, ...]:
    if request is None:
        return ()
    stored = _stored(request)
    recorded = _recorded(manifest)
    return tuple(
        sorted(item_id for item_id in recorded.keys() & stored.keys() if recorded[item_id] != stored[item_id])
    )


def _recorded(manifest: ContextManifest) -> dict[str, str]:
    """Content hashes of the recorded items; notes and bars that the assembler wrote itself are in no request."""
    own = {superseded_note_id(item.id) for item in manifest.dropped if item.reason is DropReason.SUPERSEDED}
    own |= {item.id for item in manifest.selected if item.kind is Kind.STATUS_BAR}
    return {
        item.id: item.sha256
        for item in (*manifest.selected, *manifest.dropped)
        if item.owner != "assembler" or item.id not in own
    }


def _stored(request: AssemblyRequest) -> dict[str, str]:
    """Content hashes of the items that the request may show; one out of scope now counts as gone."""
    summaries = (item for compaction in request.carry.compactions for item in compaction.items)
    everything = (*request.candidates, *request.history, *request.tools, *summaries)
    return {item.id: item.sha256 for item in everything if in_scope(item, request.context)}
