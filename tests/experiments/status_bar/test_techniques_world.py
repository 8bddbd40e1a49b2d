from __future__ import annotations

from pathlib import Path

import pytest

from experiments.agent.tools import World
from experiments.status_bar.techniques_tasks import VARIANTS, BarTask, TaskKind, bar_task
from experiments.status_bar.techniques_world import (
    CALL,
    OFFERED,
    grade,
    offered_tools,
    open_world,
    surroundings,
)
from serving.assembler.status_state import TodoStatus

PHONE = bar_task(TaskKind.PHONE, 0, 1)
"""Two calls at most, and nobody answers."""
ANSWERED = bar_task(TaskKind.PHONE, 1, 1)
"""The second of three is answered."""
FILES = bar_task(TaskKind.FILES, 0, 1)
LOST = bar_task(TaskKind.LOST_FILE, 0, 1)
PLACE = bar_task(TaskKind.PLACE, 0, 1)


class Room:
    """A task's world, and quick hands in it."""

    def __init__(self, task: BarTask, root: Path) -> None:
        self.task, self.world, self.here = task, open_world(task, root), root / task.directory

    def write(self, path: str, text: str) -> None:
        (self.here / path).parent.mkdir(parents=True, exist_ok=True)
        (self.here / path).write_text(text)

    def dial(self, times: int) -> None:
        assert self.task.phone is not None
        for _ in range(times):
            self.world.phone.call(self.task.phone.number, "")

    def solve(self) -> None:
        for wanted in self.task.wanted:
            self.write(wanted.path, wanted.accepted[0])
        if self.task.phone is not None:
            self.dial(self.task.phone.needed)


@pytest.mark.parametrize("kind", TaskKind)
@pytest.mark.parametrize("variant", range(VARIANTS))
def test_a_solved_task_is_solved_and_an_untouched_one_misses_everything(
    kind: TaskKind, variant: int, tmp_path: Path
) -> None:
    room = Room(bar_task(kind, variant, 2), tmp_path)
    untouched = grade(room.task, room.world)
    assert len(untouched.missed) == untouched.subtasks > 0
    assert not untouched.succeeded
    room.solve()
    solved = grade(room.task, room.world)
    assert (solved.missed, solved.spoiled, solved.succeeded) == ((), (), True)


def test_a_call_beyond_the_limit_fails_the_task_however_right_the_note_is(tmp_path: Path) -> None:
    room = Room(PHONE, tmp_path)
    room.solve()
    room.dial(2)
    found = grade(PHONE, room.world)
    assert (found.violations, found.missed, found.succeeded) == (2, (), False)


def test_a_note_without_the_calls_that_were_allowed_is_not_what_was_asked(tmp_path: Path) -> None:
    room = Room(PHONE, tmp_path)
    room.write("note.txt", "not reached")
    room.dial(1)
    found = grade(PHONE, room.world)
    assert (found.missed, found.violations, found.succeeded) == ((CALL,), 0, False)


def test_answering_both_ways_is_no_answer(tmp_path: Path) -> None:
    room = Room(ANSWERED, tmp_path)
    room.solve()
    room.write("note.txt", "not reached")
    assert grade(ANSWERED, room.world).spoiled == ("note.txt",)
    assert not grade(ANSWERED, room.world).succeeded


def test_a_task_without_a_limit_has_no_violations_rather_than_none_of_them(tmp_path: Path) -> None:
    assert grade(FILES, open_world(FILES, tmp_path)).violations is None


@pytest.mark.parametrize(
    "text",
    ["", "{0} or something", "{0}\n{0}", "the word {0}", "{0} {0}", "\0{0}", "x{0}"],
)
def test_a_file_that_holds_the_word_among_others_is_missed(text: str, tmp_path: Path) -> None:
    room = Room(FILES, tmp_path)
    room.solve()
    wanted = FILES.wanted[1]
    room.write(wanted.path, text.format(wanted.accepted[0]))
    assert grade(FILES, room.world).missed == (wanted.path,)


@pytest.mark.parametrize("text", ["{0}\n", "  {0}", '"{0}"', "{0}.", "`{0}`", "'{0}.'\n"])
def test_quotes_a_full_stop_and_a_line_end_are_forgiven(text: str, tmp_path: Path) -> None:
    room = Room(FILES, tmp_path)
    room.solve()
    room.write(FILES.wanted[0].path, text.format(FILES.wanted[0].accepted[0]))
    assert grade(FILES, room.world).succeeded


def test_a_folder_or_a_link_in_the_place_of_a_file_is_no_file(tmp_path: Path) -> None:
    room = Room(FILES, tmp_path)
    room.solve()
    first, second = (room.here / wanted.path for wanted in FILES.wanted[:2])
    first.unlink()
    first.mkdir()
    kept = tmp_path / "kept.txt"
    second.rename(kept)
    second.symlink_to(kept)
    assert grade(FILES, room.world).missed == tuple(wanted.path for wanted in FILES.wanted[:2])


def test_the_right_file_in_the_wrong_folder_is_missed(tmp_path: Path) -> None:
    room = Room(FILES, tmp_path)
    room.solve()
    path = FILES.wanted[0].path
    (room.here / path).rename(tmp_path / path)
    assert grade(FILES, room.world).missed == (path,)


def test_who_puts_the_lost_file_where_it_was_said_to_be_still_has_to_leave_the_old_one(
    tmp_path: Path,
) -> None:
    room = Room(LOST, tmp_path)
    room.solve()
    path, text = LOST.files[0]
    room.write("config/server.txt", text)
    assert grade(LOST, room.world).succeeded
    room.write(path, text + "# read\n")
    assert grade(LOST, room.world).spoiled == (path,)
    (room.here / path).unlink()
    assert grade(LOST, room.world).spoiled == (path,)


def test_the_time_of_asking_is_right_for_a_minute_and_no_longer(tmp_path: Path) -> None:
    minute = int(PLACE.wanted[1].accepted[0][-2:])
    hour = PLACE.wanted[1].accepted[0][:2]
    for late, right in ((0, True), (1, True), (2, False), (-1, False)):
        room = Room(PLACE, tmp_path / f"late{late}")
        room.solve()
        room.write("asked.txt", f"{hour}:{minute + late:02d}")
        assert grade(PLACE, room.world).succeeded is right


def test_an_item_is_done_when_its_file_is_there_and_the_bar_does_not_tell_whether_it_is_right(
    tmp_path: Path,
) -> None:
    room = Room(FILES, tmp_path)
    assert {item.status for item in surroundings(FILES, room.world).todo} == {TodoStatus.PENDING}
    room.write(FILES.wanted[1].path, "something else")
    statuses = [item.status for item in surroundings(FILES, room.world).todo]
    assert statuses == [TodoStatus.PENDING, TodoStatus.COMPLETED, TodoStatus.PENDING]


def test_the_bar_is_told_the_place_and_the_limit_where_there_is_one(tmp_path: Path) -> None:
    phone, place = (open_world(task, tmp_path / task.kind.value) for task in (PHONE, PLACE))
    assert surroundings(PHONE, phone).call_limits == {CALL: 2}
    around = surroundings(PLACE, place)
    assert (around.call_limits, around.system.cwd) == ({}, PLACE.wanted[0].accepted[0])


def test_every_task_has_the_same_tools_in_the_same_order(tmp_path: Path) -> None:
    worlds: list[World] = [open_world(bar_task(kind, 0, 0), tmp_path / kind.value) for kind in TaskKind]
    assert {tuple(spec.name for spec in offered_tools(world).specs) for world in worlds} == {OFFERED}
