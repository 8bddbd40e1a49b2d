"""Against a real engine: ids in every call, and what happens when the engine is killed under eight trials."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from pydantic import JsonValue

from experiments.framework import Served, Size, run_study
from experiments.framework.records import read_records, read_violations
from experiments.framework.served_model import ServedModel, serve_model
from experiments.tool_calling import ToolCallingCostStudy, ToolCallingStudy
from experiments.workloads.tool_prompts import PromptClass
from serving.client import Client
from serving.models import ensure
from tests.conftest import LIVE_MODEL, LiveServer

ONE_OF_EACH = Size(name="quick", tasks=len(PromptClass), seeds=1)


def shortened(study: ToolCallingStudy) -> ToolCallingStudy:
    """A model of random weights says nothing in many words as well as in few."""
    study.base = {**study.base, "decode.max_tokens": 24, "harness.max_iterations": 2}
    return study


@pytest.mark.live
@pytest.mark.parametrize(
    "kind", [ToolCallingStudy, pytest.param(ToolCallingCostStudy, marks=pytest.mark.full)]
)
def test_every_call_of_a_run_reads_the_rendered_ids(
    kind: type[ToolCallingStudy], live_server: LiveServer, tmp_path: Path
) -> None:
    @contextmanager
    def serve(_engine: Mapping[str, JsonValue]) -> Iterator[Served[ServedModel]]:
        with Client(live_server.base_url) as client:
            target = ServedModel(
                client, ensure(LIVE_MODEL), live_server.block_size, live_server.num_blocks, 8192
            )
            yield Served(target=target, environment={"engine": "shared"})

    study = shortened(kind(LIVE_MODEL, block_size=live_server.block_size))
    done = run_study(study, ONE_OF_EACH, folder=tmp_path / "run", serve=serve)
    assert (
        done.complete == done.planned == 14
    )  # five prompts, four of them required as well, and five rebuilt
    records = [record for record in read_records(tmp_path / "run") if record.scored]
    assert read_violations(tmp_path / "run") == ()
    for record in records:
        assert record.measures["ids_equal"] == record.measures["model_calls"] == len(record.calls) > 0
        if study.predictable:
            assert all(call.cached_tokens == call.predicted_tokens for call in record.calls)
            assert record.calls[0].cached_tokens == 0
    assert (
        study.analyse(records)
        .conclusion.partition(".")[0]
        .endswith(f"{len([c for r in records for c in r.calls])} calls")
    )


@pytest.mark.full
def test_an_engine_killed_under_eight_trials_is_started_once_more_and_no_trial_is_lost(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    killed: list[int] = []

    def kill_one() -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and not killed:
            began = (run / "attempts.jsonl").exists() and (run / "attempts.jsonl").stat().st_size > 0
            for process in psutil.Process().children(recursive=True) if began else ():
                if "EngineCore" in process.name() or "EngineCore" in " ".join(process.cmdline()):
                    process.kill()
                    killed.append(process.pid)
                    return
            time.sleep(0.05)

    study = shortened(ToolCallingStudy(LIVE_MODEL, block_size=32))
    killer = threading.Thread(target=kill_one)
    killer.start()
    done = run_study(study, ONE_OF_EACH, folder=run, serve=serve_model())
    killer.join()
    assert len(killed) == 1, "the engine was not hit while it worked"
    assert done.complete == done.planned == 14
    records = list(read_records(run))
    failed = [record for record in records if not record.scored]
    assert 1 <= len(failed) <= study.concurrency
    assert {(r.arm, r.spec) for r in failed} == {
        (r.arm, r.spec) for r in records if r.scored and r.attempt > 1
    }
