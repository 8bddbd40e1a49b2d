"""The same promises kept by the real vLLM; minutes, so part of the full run only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from serving.engine.backends import select_backend
from serving.engine.config import BackendName, EngineCommand, EngineConfig
from serving.engine.machine import inspect_machine
from serving.engine.plan import plan_command
from serving.engine.preflight import preflight
from serving.engine.running import RunningEngine, start
from serving.errors import LabError
from serving.models.folder import ModelFolder
from tests.serving.engine.fake_stage import PARENT, free_port, wait_until
from tests.serving.engine.tiny_model import build_tiny_model

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not any(engine.is_cpu for engine in inspect_machine().engines),
        reason="no CPU build of vLLM is installed",
    ),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


def planned(model: ModelFolder, *extra_flags: str, **changes: int | None) -> EngineCommand:
    machine = inspect_machine()
    config = EngineConfig(
        model=model,
        backend=select_backend(machine, BackendName.CPU).name,
        port=free_port(),
        block_size=32,
        kv_cache_bytes=64 << 20,
        extra_flags=extra_flags,
    ).model_copy(update=changes)
    preflight(config, machine)
    return plan_command(config, machine)


def family(engine: RunningEngine) -> list[psutil.Process]:
    supervisor = psutil.Process(engine.supervisor_pid)
    return [supervisor, *supervisor.children(recursive=True)]


def all_gone(processes: list[psutil.Process]) -> bool:
    def gone(process: psutil.Process) -> bool:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE

    return wait_until(lambda: all(gone(process) for process in processes), 60.0)


def streamed_arrivals(engine: RunningEngine) -> int:
    """Network chunks of one streamed answer of 200 tokens."""
    body = {
        "model": "tiny-shape",
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "stream": True,
        "max_tokens": 200,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,  # a chunk is sent even for a token without text
    }
    url = f"{engine.base_url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, timeout=120) as answer:
        return sum(1 for _ in answer.iter_raw())


def test_a_real_engine_serves_measures_and_dies_with_its_cause(model: ModelFolder, tmp_path: Path) -> None:
    command = planned(model, kv_cache_bytes=4 << 20)
    with start(command, log_path=tmp_path / "engine.log", timeout_s=500) as engine:
        listed = httpx.get(f"{engine.base_url}/v1/models").json()["data"]
        assert [entry["id"] for entry in listed] == ["tiny-shape", engine.instance]
        # 2 layers × 2 heads × 32 × 2 × 4 bytes = 1024 bytes a token: 4096 fit, the model could take 8192.
        assert 0 < listed[0]["max_model_len"] <= 4096
        prompt = [index % 250 for index in range(3000)]
        # Seeded and sampled, with a prompt above vLLM's default batch limit: an engine left to itself dies.
        body = {"model": "tiny-shape", "prompt": prompt, "max_tokens": 4, "temperature": 0.8, "seed": 1}
        usages = [
            httpx.post(f"{engine.base_url}/v1/completions", json=body, timeout=120).json()["usage"]
            for _ in range(2)
        ]
        cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
        assert cached == [0, 2976]  # whole blocks of 32
        assert 'block_size="32"' in httpx.get(f"{engine.base_url}/metrics").text
        assert streamed_arrivals(engine) > 20
        engine.check()
        processes = family(engine)
        core = max(processes, key=lambda process: process.create_time() if is_python_work(process) else 0.0)
        core.kill()
        assert wait_until(lambda: engine.poll() is not None or "died" in engine.log_path.read_text(), 60.0)
        with pytest.raises(LabError, match=r"The engine .*engine\.log"):
            engine.check()
        assert all_gone(processes)


def is_python_work(process: psutil.Process) -> bool:
    """The engine's core or worker, not multiprocessing's resource tracker or a supervisor."""
    line = " ".join(process.cmdline())
    return "spawn_main" in line or "EngineCore" in line or "Worker" in line


def test_a_killed_parent_leaves_nothing_of_a_real_engine(model: ModelFolder, tmp_path: Path) -> None:
    command, log = planned(model), tmp_path / "engine.log"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, command.model_dump_json(), str(log)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "serving\n", log.read_text()
    processes = psutil.Process(parent.pid).children(recursive=True)
    assert len(processes) >= 4  # supervisor, guard, API server, engine core
    parent.kill()
    parent.communicate(timeout=60)
    assert all_gone(processes)


def test_what_preflight_would_refuse_is_explained_from_the_log(model: ModelFolder, tmp_path: Path) -> None:
    command = planned(model, "--block-size", "16", block_size=None)
    with pytest.raises(LabError, match="multiples of 32"):
        start(command, log_path=tmp_path / "engine.log", timeout_s=500)
    assert json.dumps("16") in json.dumps(command.argv)
