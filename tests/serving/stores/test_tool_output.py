from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from serving.assembler import Observation, ToolResult
from serving.errors import LabError, UsageError
from serving.stores import ArtifactStore, observe, observed

RUN = "toolrun://req-42/step-3"
RAW = '{"key": "A-123", "state": "revoked", "log": "' + "x" * 50_000 + '"}'


def seen(status: str = "revoked", **more: object) -> Observation:
    fields = {
        "tool": "check_api_key_status",
        "status": status,
        "checked_at": "2026-07-15T09:30:00Z",
        "verified": {"account_id": "A-123"},
        **more,
    }
    return Observation.model_validate(fields)


def test_the_raw_output_is_kept_and_the_observation_is_what_the_model_reads(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "artifacts")
    result = observe(store, "c1", reference=RUN, raw=RAW, observation=seen())
    assert result == seen(artifact_ref=RUN).as_result("c1")
    assert "xxx" not in result.content
    assert store.get(result.artifact_ref or "") == RAW.encode()


def test_the_first_observation_of_a_run_stays_after_a_restart_whatever_is_seen_later(tmp_path: Path) -> None:
    first = observe(ArtifactStore(tmp_path), "c1", reference=RUN, raw=RAW, observation=seen())
    later = seen("active", checked_at="2026-07-16", error_class="timeout")
    again = observe(ArtifactStore(tmp_path), "c1", reference=RUN, raw=RAW, observation=later)
    assert again == first
    assert observed(ArtifactStore(tmp_path), "c1", RUN) == first


def test_a_failure_stays_a_failure_after_a_restart(tmp_path: Path) -> None:
    failure = seen("failed", error_class="timeout")
    first = observe(ArtifactStore(tmp_path), "c1", reference=RUN, raw="", observation=failure)
    assert first.failed
    assert observed(ArtifactStore(tmp_path), "c1", RUN) == first


def test_two_runs_with_the_same_output_keep_the_times_at_which_each_was_checked(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    other = "toolrun://req-42/step-9"
    first = observe(store, "c1", reference=RUN, raw=RAW, observation=seen())
    second = observe(store, "c2", reference=other, raw=RAW, observation=seen(checked_at="2026-07-16"))
    assert (first.artifact_ref, second.artifact_ref) == (RUN, other)
    assert "2026-07-15" in first.content
    assert "2026-07-16" in second.content


def test_a_run_that_was_never_finished_must_run_again(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    assert observed(store, "c1", RUN) is None
    store.put(RAW, reference=RUN)
    assert observed(store, "c1", RUN) is None


def test_other_output_under_the_same_run_is_refused_and_what_was_shown_stays(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    first = observe(store, "c1", reference=RUN, raw=RAW, observation=seen())
    with pytest.raises(LabError, match="already stands for other content"):
        observe(store, "c1", reference=RUN, raw="other", observation=seen("active"))
    assert observed(store, "c1", RUN) == first


def test_an_observation_of_another_artifact_or_without_a_run_of_its_own_is_refused(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    with pytest.raises(UsageError, match="without an artifact or with toolrun://req-42/step-3"):
        observe(store, "c", reference=RUN, raw=RAW, observation=seen(artifact_ref="toolrun://other/1"))
    with pytest.raises(UsageError, match="toolrun://<run>/<step>"):
        observe(store, "c", reference=f"artifact://sha256/{'0' * 64}", raw=RAW, observation=seen())
    assert store.resolve(RUN) is None


def test_a_reference_whose_output_is_gone_is_not_shown(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    observe(store, "c1", reference=RUN, raw=RAW, observation=seen())
    for kept in (tmp_path / "objects").iterdir():
        kept.unlink()
    with pytest.raises(LabError, match="does not resolve"):
        observed(store, "c1", RUN)


KILLED = """
import sys
from pathlib import Path
from serving.assembler import Observation
from serving.stores import ArtifactStore, observe
store = ArtifactStore(Path(sys.argv[1]))
for number in range(100_000):
    seen = Observation(tool="t", status="ok", checked_at="2026-07-15", verified={"number": number})
    result = observe(store, "c", reference=f"toolrun://r/{number}", raw=f"raw {number}", observation=seen)
    print(result.model_dump_json(), flush=True)
"""


def test_whatever_was_shown_before_a_kill_is_shown_again(
    tmp_path: Path, kill_after_lines: Callable[..., list[str]]
) -> None:
    printed = kill_after_lines(KILLED, str(tmp_path), lines=5)
    store = ArtifactStore(tmp_path)
    complete = [line for line in printed if line.endswith("}")]
    for number, line in enumerate(complete):
        shown = ToolResult.model_validate_json(line)
        assert observed(store, "c", f"toolrun://r/{number}") == shown
        assert store.get(shown.artifact_ref or "") == f"raw {number}".encode()
    assert len(complete) >= 5
