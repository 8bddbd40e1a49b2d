"""`ctxlab serve` as a person runs it: refusals in one sentence, and nothing left whatever ends it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.marked import marked, marking

MODEL = "qwen3-nano-shape"
COMMAND = [sys.executable, "-m", "experiments.cli.main", "serve", "--model", MODEL]


def serve(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )


def refused(*arguments: str) -> str:
    """The one error line of a `serve` that must refuse; nothing that it started is left."""
    mark = uuid.uuid4().hex
    process = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | marking(mark),
    )
    assert process.returncode in (1, 2), process.stderr
    assert process.stdout == ""
    assert "Traceback" not in process.stderr
    errors = [line for line in process.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, process.stderr
    assert marked(mark) == []
    return errors[0]


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_a_taken_port_is_named(busy_port: int) -> None:
    assert str(busy_port) in refused("--port", str(busy_port))


def test_a_block_size_that_the_cpu_cannot_take_is_refused_at_once() -> None:
    assert refused("--block-size", "16", "--backend", "cpu").endswith("16 was asked for: use 32.")
    assert refused("--block-size", "48", "--backend", "cpu").endswith("48 was asked for: use 32 or 64.")


def test_too_little_memory_for_the_cache_is_told_with_both_numbers() -> None:
    sentence = refused("--kv-cache-gib", "100000", "--port", "0")
    assert re.search(r"100000\.0.*GiB.*free", sentence)


def test_a_cache_below_one_request_is_told_before_the_start() -> None:
    assert "KV cache" in refused("--kv-cache-gib", "0.01", "--max-model-len", "8192", "--port", "0")


def test_a_folder_without_weights_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "empty-model"
    folder.mkdir()
    (folder / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}')
    process = subprocess.run(
        [*COMMAND[:-1], str(folder)], capture_output=True, text=True, check=False, timeout=120
    )
    assert process.returncode in (1, 2)
    assert "Traceback" not in process.stderr
    assert str(folder) in process.stderr


def test_another_host_without_a_key_is_refused() -> None:
    assert "API key" in refused("--host", "0.0.0.0")


def test_a_dry_run_prints_the_command_and_masks_the_key() -> None:
    done = subprocess.run(
        [*COMMAND, "--dry-run"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "CTXLAB_API_KEY": "sk-very-secret"},
    )
    assert done.returncode == 0, done.stderr
    assert "--enable-prefix-caching" in done.stdout
    assert "very-secret" not in done.stdout + done.stderr
    assert "****" in done.stdout


def test_kv_events_are_told_at_sockets_that_follow_from_the_port() -> None:
    for port in ("8123", "8124"):
        done = subprocess.run(
            [*COMMAND, "--dry-run", "--kv-events", "--port", port],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert "--kv-events-config" in done.stdout
        assert f"/{port}.events" in done.stdout and f"/{port}.replay" in done.stdout


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def engine_processes(marker: str) -> list[psutil.Process]:
    """Every process of an engine that serves on the port named by `marker`, wherever it hangs in the tree."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if f"--port {marker}" in line and "vllm" in line:
            found.append(process)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_gone(processes: list[psutil.Process], port: int) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        alive = [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        if not alive and not engine_processes(str(port)):
            return True
        time.sleep(0.2)
    return False


def wait_until_engine_runs(port: int) -> None:
    deadline = time.monotonic() + 120
    while not engine_processes(str(port)):
        assert time.monotonic() < deadline, "the engine's process never appeared"
        time.sleep(0.05)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("moment", ["starting", "serving"])
def test_a_signal_ends_everything(number: signal.Signals, moment: str) -> None:
    port = free_port()
    process = serve("--port", str(port), "--kv-cache-gib", "0.25", "--max-model-len", "2048", "--json")
    assert process.stdout is not None
    wait_until_engine_runs(port)
    if moment == "serving":
        facts = json.loads(process.stdout.readline())
        assert facts["url"].endswith(str(port))
    else:
        time.sleep(2)
    processes = family(process)
    assert len(processes) >= 2
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (-9 if number is signal.SIGKILL else 130), err
    assert "Traceback" not in err
    assert wait_until_gone(processes, port)


@pytest.mark.full
def test_a_killed_worker_ends_the_command_with_one_sentence() -> None:
    port = free_port()
    process = serve("--port", str(port), "--kv-cache-gib", "0.25", "--max-model-len", "2048", "--json")
    assert process.stdout is not None
    json.loads(process.stdout.readline())
    processes = family(process)
    core = next(p for p in processes if "spawn_main" in " ".join(p.cmdline()) or "EngineCore" in p.name())
    core.kill()
    _, err = process.communicate(timeout=90)
    assert process.returncode == 1
    assert len([line for line in err.splitlines() if line.startswith("error: ")]) == 1
    assert "Traceback" not in err
    assert wait_until_gone(processes, port)
