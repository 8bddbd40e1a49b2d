"""Whatever dies, nothing of the engine is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine import supervisor
from serving.engine.running import start
from serving.engine.supervisor import Member, ProcessEntry, find_members, parse_ps, parse_stat
from tests.serving.engine.fake_stage import FORKING_PARENT, FakeStage, wait_until

HARD = "worker detached stubborn"


def serving_parent(stage: FakeStage, words: str) -> subprocess.Popen[str]:
    parent = stage.parent(words)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "serving\n"
    return parent


def starting_parent(stage: FakeStage, words: str) -> subprocess.Popen[str]:
    parent = stage.parent(f"endless {words}")
    assert wait_until(lambda: "Starting to load model" in stage.log())
    return parent


def end(parent: subprocess.Popen[str], number: signal.Signals) -> None:
    parent.send_signal(number)
    parent.communicate(timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("words", ["", HARD])
def test_nothing_is_left_when_the_parent_ends_while_serving(
    stage: FakeStage, number: signal.Signals, words: str
) -> None:
    parent = serving_parent(stage, words)
    assert len(stage.engine_processes()) == (3 if words else 1)
    end(parent, number)
    assert stage.nothing_left(), stage.processes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("words", ["", HARD])
def test_nothing_is_left_when_the_parent_ends_during_the_start(
    stage: FakeStage, number: signal.Signals, words: str
) -> None:
    parent = starting_parent(stage, words)
    assert stage.engine_processes()
    end(parent, number)
    assert stage.nothing_left(), stage.processes()


@pytest.mark.parametrize("role", ["supervise", "guard"])
@pytest.mark.parametrize("words", ["", HARD])
def test_nothing_is_left_when_a_supervisor_is_killed(stage: FakeStage, role: str, words: str) -> None:
    with start(stage.command(words), log_path=stage.log_path, grace_s=1.0) as engine:
        stage.role(role).kill()
        assert stage.nothing_left(), stage.processes()
        assert engine.poll() is not None


def test_nothing_is_left_when_the_engine_itself_is_killed(stage: FakeStage) -> None:
    with start(stage.command(HARD), log_path=stage.log_path, grace_s=1.0) as engine:
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        assert stage.nothing_left(), stage.processes()
        assert engine.wait(10) == 128 + signal.SIGKILL


def test_nothing_is_left_when_the_parent_is_killed_while_a_fork_holds_its_pipe(stage: FakeStage) -> None:
    parent = stage.parent(HARD, FORKING_PARENT)
    assert parent.stdout is not None
    fork = int(parent.stdout.readline())
    parent.kill()
    parent.wait(60)
    try:
        assert stage.nothing_left(), stage.processes()
    finally:
        os.kill(fork, signal.SIGKILL)
        parent.communicate(timeout=60)


def test_a_polite_engine_is_not_killed(stage: FakeStage) -> None:
    engine = start(stage.command(), log_path=stage.log_path, grace_s=30.0)
    engine.stop()
    assert engine.poll() == 128 + signal.SIGTERM


def test_a_command_that_does_not_exist_is_told_to_the_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", supervisor.__file__, "supervise", "1", "/no/such/program"],
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == supervisor.NOT_STARTED
    assert '"event": "failed"' in done.stdout
    assert "/no/such/program: No such file or directory" in done.stdout


def test_a_process_name_with_spaces_and_parentheses_is_read() -> None:
    fields = " ".join(str(number) for number in range(5, 60))
    entry = parse_stat(f"42 (a) b (c)) S 7 9 {fields}")
    assert entry == ProcessEntry(pid=42, parent=7, group=9, born=str(5 + 16))


def test_an_ended_process_is_no_process() -> None:
    assert parse_stat("42 (x) Z 7 9 " + "0 " * 50) is None
    assert parse_ps("  42     1    42 Z+   Sun Nov 29 20:00:00 2026\n") == []


def test_the_table_of_ps_is_read() -> None:
    text = "    1     0     1 Ss   Sun Nov 29 20:15:01 2026\n  812 1 812 S+   Sun Nov 29 20:16:00 2026    \n"
    assert parse_ps(text)[1] == ProcessEntry(812, 1, 812, "Sun Nov 29 20:16:00 2026")


@st.composite
def process_trees(draw: st.DrawFn) -> list[ProcessEntry]:
    count = draw(st.integers(min_value=1, max_value=30))
    table = [ProcessEntry(1, 0, 1, "0")]
    for pid in range(2, count + 2):
        parent = draw(st.integers(min_value=1, max_value=pid - 1))
        group = draw(st.sampled_from([pid, table[parent - 1].group]))
        table.append(ProcessEntry(pid, parent, group, str(pid)))
    return table


@given(process_trees(), st.data())
def test_members_are_the_descendants_and_the_group_and_never_the_root(
    table: list[ProcessEntry], data: st.DataObject
) -> None:
    root = data.draw(st.sampled_from([row.pid for row in table]))
    parents = {row.pid: row.parent for row in table}

    def descends(pid: int) -> bool:
        return pid in parents and (parents[pid] == root or descends(parents[pid]))

    members = {member.pid for member in find_members(table, root, group=-1, known=set())}
    assert members == {row.pid for row in table if descends(row.pid)}


@given(process_trees())
def test_a_known_process_stays_a_member_after_it_was_orphaned(table: list[ProcessEntry]) -> None:
    before = find_members(table, root=1, group=-1, known=set())
    moved = [row._replace(parent=0, group=row.pid) for row in table]
    assert find_members(moved, root=1, group=-1, known=before) == before


def test_another_process_with_a_remembered_number_is_not_a_member() -> None:
    table = [ProcessEntry(1, 0, 1, "0"), ProcessEntry(9, 1, 9, "later")]
    assert find_members(table, root=5, group=5, known={Member(9, "earlier")}) == set()
