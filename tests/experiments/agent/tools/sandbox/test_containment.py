from __future__ import annotations

import os
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from experiments.agent.tools.sandbox import Ended, Limits, NoIsolationError, Sandbox, isolation, linux_child
from experiments.agent.tools.sandbox.listening import INTERPRETER
from tests.support.examples import FULL
from tests.support.hostile import BOMBS, QUICK, escapes, snapshot, trying

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the isolation of Linux")

LIMITS = Limits(
    wall_seconds=4,
    cpu_seconds=1,
    memory_bytes=200 * 2**20,
    processes=12,
    scratch_bytes=4 * 2**20,
    scratch_files=100,
    output_bytes=20_000,
)


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    try:
        return isolation(LIMITS)
    except NoIsolationError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """After every test: no process, no mount, no handle and, around the test's secret, no file more than before."""
    (tmp_path / "secret.txt").write_text("the-secret-outside")
    before, handles, mounts = snapshot(tmp_path), _handles(), Path("/proc/self/mountinfo").read_text()
    yield
    assert snapshot(tmp_path) == before
    assert _handles() == handles
    assert Path("/proc/self/mountinfo").read_text() == mounts
    # Another checkout may be running programs of its own right now: those end.
    for _ in range(100):
        if not (left := _left_over()):
            break
        time.sleep(0.1)
    assert not left


def _handles() -> set[str]:
    return {handle.name for handle in Path("/proc/self/fd").iterdir() if handle.exists()}


def _left_over() -> list[str]:
    """Sandboxed processes anywhere on the machine, by their namespace and by their command."""
    own = Path("/proc/self/ns/pid").readlink()
    found = []
    for process in psutil.process_iter():
        try:
            command = " ".join(process.cmdline())
            foreign = Path(f"/proc/{process.pid}/ns/pid").readlink() != own
        except (psutil.Error, OSError):
            continue
        if linux_child.__file__ in command or (foreign and linux_child.PROGRAM in command):
            found.append(f"{process.pid} {command}")
    return found


def test_a_program_of_the_standard_library_runs(sandbox: Sandbox) -> None:
    result = sandbox.run(
        "import json, math, sqlite3, decimal\nfrom pathlib import Path\nPath('a').write_text('b')\n"
        "print(json.dumps([math.comb(5, 2), Path('a').read_text(), str(Path.cwd())]))"
    )
    assert (result.ended, result.exit_status, result.stderr) == (Ended.EXITED, 0, "")
    assert result.stdout == '[10, "b", "/scratch"]\n'


def test_two_runs_share_nothing(sandbox: Sandbox) -> None:
    assert sandbox.run("open('kept', 'w').write('x')").exit_status == 0
    assert sandbox.run("import os\nprint(os.listdir('.'))").stdout == "[]\n"


def test_every_way_out_that_is_known_is_closed(sandbox: Sandbox, tmp_path: Path) -> None:
    statements = escapes(tmp_path / "secret.txt", INTERPRETER, sysconfig.get_path("stdlib"))
    for start in range(0, len(statements), 150):
        part = statements[start : start + 150]
        result = sandbox.run(trying(part))
        assert result.stdout == f"tried {len(part)}\n", result


def test_a_secret_in_the_environment_and_an_open_file_stay_here(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "the-secret-outside")
    with (tmp_path / "secret.txt").open() as secret:
        os.set_inheritable(secret.fileno(), True)
        result = sandbox.run(
            "import os\nprint(sorted(os.environ))\n"
            "for n in range(3, 256):\n    try:\n        print(n, os.read(n, 100))\n    except OSError:\n        pass"
        )
    assert "secret" not in result.stdout and "TOKEN" not in result.stdout
    assert result.stdout.count("\n") == 1, result.stdout


@pytest.mark.parametrize("name", [name for name in BOMBS if FULL or name in QUICK])
def test_a_bomb_is_contained(sandbox: Sandbox, name: str) -> None:
    result = sandbox.run(BOMBS[name])
    assert len(result.stdout) <= LIMITS.output_bytes and len(result.stderr) <= LIMITS.output_bytes
    assert "alive" not in result.stdout
    expected = {
        "forks": {Ended.PROCESSES, Ended.EXITED, Ended.CPU_TIME},
        "forks that swallow errors": {Ended.PROCESSES, Ended.CPU_TIME},
        "threads": {Ended.PROCESSES, Ended.WALL_TIME},
        "interpreters": {Ended.PROCESSES, Ended.EXITED, Ended.CPU_TIME, Ended.MEMORY},
        "memory of several": {Ended.MEMORY},
        "endless output": {Ended.OUTPUT},
        "endless errors": {Ended.OUTPUT},
        "binary output": {Ended.OUTPUT},
        "computing": {Ended.CPU_TIME},
        "several that compute": {Ended.CPU_TIME, Ended.PROCESSES},
        "a pattern": {Ended.CPU_TIME},
        "sleeping": {Ended.WALL_TIME},
        "deaf to signals": {Ended.WALL_TIME},
        "quiet": {Ended.WALL_TIME},
        "stopping itself": {Ended.WALL_TIME},
        "killing itself": {Ended.SIGNAL},
        "an exit status": {Ended.EXITED},
    }.get(name, set(Ended) - {Ended.CANCELLED})
    assert result.ended in expected, result
    if result.ended is Ended.EXITED and name != "daemons":
        assert result.exit_status != 0, result


def test_a_cancelled_run_ends_with_everything_it_started(sandbox: Sandbox) -> None:
    cancel = threading.Event()
    program = "import os, time\nfor _ in range(2):\n    os.fork()\nprint('up')\ntime.sleep(1000)"
    with ThreadPoolExecutor() as pool:
        running = pool.submit(isolation(Limits(wall_seconds=100)).run, program, cancel)
        while not any(linux_child.PROGRAM in line for line in _left_over()):
            time.sleep(0.02)
        cancel.set()
        assert running.result().ended is Ended.CANCELLED


def test_runs_side_by_side_do_not_meet(sandbox: Sandbox) -> None:
    def run(number: int) -> str:
        return sandbox.run(f"open('a', 'w').write('{number}')\nprint({number}, open('a').read())").stdout

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(8))) == [f"{number} {number}\n" for number in range(8)]


def test_a_program_dies_with_the_lab(tmp_path: Path) -> None:
    """The lab is killed in a way that it cannot see coming."""
    lab = os.fork()
    if lab == 0:
        try:
            isolation(Limits(wall_seconds=1000)).run("import os, time\nos.fork()\ntime.sleep(1000)")
        finally:
            os._exit(0)
    try:
        for _ in range(500):
            if sum(linux_child.PROGRAM in line for line in _left_over()) >= 2:
                break
            time.sleep(0.02)
        else:
            pytest.fail("the program never ran")
    finally:
        os.kill(lab, 9)
        os.waitpid(lab, 0)


def test_a_machine_without_isolation_refuses_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.agent.tools.sandbox import linux

    monkeypatch.setattr(linux, "_DEVICES", ("/dev/null", "/dev/there-is-none"))
    with pytest.raises(
        NoIsolationError, match=r"^Expected a kernel that isolates .*there-is-none.*leave the code"
    ):
        isolation()
