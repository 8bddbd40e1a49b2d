"""A start that works, a start that does not, and a death while serving."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from serving.engine.attach import attach
from serving.engine.config import EngineCommand
from serving.engine.plan import API_KEY_VARIABLE
from serving.engine.running import INSTANCE_VARIABLE, start, with_instance_name
from serving.engine.stages import Stage
from serving.errors import LabError, UsageError
from tests.serving.engine.fake_stage import FakeStage, wait_until


class Recorder:
    """A `Progress` that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begin(self, stage: str, *, total: float | None = None, unit: str = "") -> None:
        self.told.append(f"begin {stage}")

    def advance(self, amount: float) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None:
        self.told.append("end")


def test_a_started_engine_answers_and_its_stages_were_shown(stage: FakeStage) -> None:
    progress = Recorder()
    with start(stage.command(), log_path=stage.log_path, progress=progress, grace_s=5.0) as engine:
        assert engine.base_url == f"http://127.0.0.1:{stage.port}"
        assert [process.pid for process in stage.engine_processes()] == [engine.pid]
        engine.check()
        assert engine.poll() is None
    assert progress.told[0] == f"begin {Stage.STARTING}"
    begins = [word for word in progress.told if word != "end"]
    assert progress.told == [word for begin in begins for word in (begin, "end")]
    assert stage.nothing_left()


def test_stopping_twice_is_stopping_once(stage: FakeStage) -> None:
    engine = start(stage.command(), log_path=stage.log_path, grace_s=5.0)
    engine.stop()
    engine.stop()
    assert engine.poll() is not None


def test_the_engine_is_marked_in_its_environment(stage: FakeStage) -> None:
    with start(stage.command(), log_path=stage.log_path, grace_s=5.0) as engine:
        (process,) = stage.engine_processes()
        assert process.environ()[INSTANCE_VARIABLE] == engine.instance


def test_an_endless_start_is_ended_and_names_its_stage(stage: FakeStage) -> None:
    with pytest.raises(LabError, match='within 4 s and is still at the stage "load the weights"'):
        start(stage.command("endless stubborn"), log_path=stage.log_path, timeout_s=4.0, grace_s=0.5)
    assert stage.nothing_left()


def test_a_fatal_line_ends_the_start_although_the_first_process_lives_on(stage: FakeStage) -> None:
    with pytest.raises(LabError, match="the dog ate the weights"):
        start(stage.command("fatal worker detached"), log_path=stage.log_path, timeout_s=300.0, grace_s=1.0)
    assert stage.nothing_left()


def test_an_engine_that_dies_at_once_is_noticed_at_once(stage: FakeStage) -> None:
    broken = stage.command().model_copy(
        update={"argv": (sys.executable, "-c", "raise ValueError('no such thing')", stage.marker)}
    )
    with pytest.raises(LabError, match=r"code 1 before it was ready: .*no such thing.* full log is .*log"):
        start(broken, log_path=stage.log_path, timeout_s=300.0)
    assert stage.nothing_left()


def test_a_program_that_does_not_exist_is_named(stage: FakeStage) -> None:
    absent = stage.command().model_copy(update={"argv": ("/no/such/python", stage.marker)})
    with pytest.raises(LabError, match="/no/such/python: No such file or directory"):
        start(absent, log_path=stage.log_path, timeout_s=300.0)


def test_another_server_on_the_port_is_not_taken_for_ours(stage: FakeStage) -> None:
    with pytest.raises(LabError, match=r"answered by another server \(it serves somebody-else\)"):
        start(stage.command("stranger"), log_path=stage.log_path, timeout_s=300.0, grace_s=1.0)
    assert stage.nothing_left()


def test_a_killed_worker_is_noticed_with_its_cause_and_nothing_is_left(stage: FakeStage) -> None:
    with start(stage.command("worker detached"), log_path=stage.log_path, grace_s=1.0) as engine:
        engine.check()
        (worker,) = stage.processes("VllmWorker")
        worker.kill()
        assert wait_until(lambda: "died unexpectedly" in stage.log())
        with pytest.raises(LabError, match="worker"):
            engine.check()
        assert stage.nothing_left()
        with pytest.raises(LabError, match="worker"):
            engine.check()


def test_waiting_returns_when_the_engine_has_ended(stage: FakeStage) -> None:
    with start(stage.command(), log_path=stage.log_path, grace_s=1.0) as engine:
        with pytest.raises(LabError, match=r"end within 0\.1 s and still runs"):
            engine.wait(0.1)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        assert engine.wait(30) == 128 + signal.SIGKILL
        with pytest.raises(LabError, match="ended with exit code 137"):
            engine.check()


def test_a_key_reaches_the_engine_and_not_the_log(stage: FakeStage) -> None:
    keyed = stage.command().model_copy(update={"secret_env": {API_KEY_VARIABLE: SecretStr("sk-hidden")}})
    with start(keyed, log_path=stage.log_path, grace_s=1.0):
        with attach(f"http://127.0.0.1:{stage.port}/v1", api_key=SecretStr("sk-hidden")) as attached:
            assert "fake" in attached.model_names
            attached.check()
        with pytest.raises(LabError, match="401 came: give its API key"):
            attach(f"http://127.0.0.1:{stage.port}")
        lines = [" ".join(process.cmdline()) for process in stage.processes()]
    assert "sk-hidden" not in stage.log()
    assert not any("sk-hidden" in line for line in lines)


def test_attaching_to_nothing_and_to_nonsense_is_refused(stage: FakeStage) -> None:
    with pytest.raises(LabError, match="No server answers"):
        attach(f"http://127.0.0.1:{stage.port}")
    for url in ("127.0.0.1:8000", "http://[::1"):
        with pytest.raises(UsageError, match="write the scheme"):
            attach(url)


def test_the_instance_name_follows_the_name_users_know() -> None:
    command = EngineCommand(
        argv=("python", "--served-model-name", "qwen", "--port", "1"),
        env={},
        host="127.0.0.1",
        port=1,
        served_model_name="qwen",
    )
    assert with_instance_name(command, "qwen-1") == (
        *("python", "--served-model-name", "qwen", "qwen-1"),
        *("--port", "1"),
    )


def test_importing_the_engine_room_imports_no_engine() -> None:
    program = (
        "import sys, serving.engine; "
        "print(sorted({'torch', 'transformers', 'vllm', 'numpy'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
