"""From a tool's raw output to what the model reads: kept first, observed, frozen at its first appearance."""

from __future__ import annotations

from serving.assembler import Observation, ToolResult
from serving.errors import UsageError
from serving.stores.artifacts import ArtifactStore


def observe(
    store: ArtifactStore, call_id: str, *, reference: str, raw: bytes | str, observation: Observation
) -> ToolResult:
    """Keep `raw` under `reference` and answer the call with the observation, its reference filled in.

    `reference` names this one run of the tool (`toolrun://req-42/step-3`). The first observation of a run is
    shown ever after, byte for byte, also when another process or a restart comes with another one.
    `UsageError` for an observation that names another artifact, `LabError` for a reference that already
    stands for other output; in both cases nothing is shown.
    """
    if observation.artifact_ref not in (None, reference):
        raise UsageError(
            f"Expected an observation without an artifact or with {reference}, but it names "
            f"{observation.artifact_ref}; leave artifact_ref out."
        )
    kept = store.put(raw, reference=reference)
    store.freeze(kept.uri, observation.kept_at(kept.uri).text())
    return _shown(store, call_id, kept.uri)


def observed(store: ArtifactStore, call_id: str, reference: str) -> ToolResult | None:
    """The answer of a run that `observe` has finished; None where it has not, so that the tool must run."""
    return None if store.frozen(reference) is None else _shown(store, call_id, reference)


def _shown(store: ArtifactStore, call_id: str, reference: str) -> ToolResult:
    """The frozen text decides whether the call failed too: a later observation must not contradict it."""
    first = Observation.read(store.frozen(reference) or "")
    return store.tool_result(call_id, reference, first.text(), failed=first.failed)
