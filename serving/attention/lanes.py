"""Work on several cores in whole tasks, each torch operation on one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Generic, TypeVar

import torch

Task = TypeVar("Task")
Room = TypeVar("Room")


class Lanes(Generic[Task, Room]):
    """Runs tasks side by side, each with one of as many rooms (buffers) as there are lanes.

    The operations on a tile are small: shared between cores they spend more time at barriers than at work,
    and where another program holds a core, the others wait for it hundreds of times a layer. Whole tasks
    meet once.
    """

    def __init__(self, make_room: Callable[[], Room]) -> None:
        self._make_room = make_room
        self._rooms: list[Room] = []
        self._pool: ThreadPoolExecutor | None = None

    def run(self, work: Callable[[Task, Room], None], tasks: Sequence[Task], *, one_by_one: bool) -> None:
        """Do `work(task, room)` for every task; they must not write to the same places.

        `one_by_one` keeps them in this thread (a device that runs its own queue, or very little work). An
        error in one task is raised here.
        """
        threads = torch.get_num_threads()
        lanes = 1 if one_by_one else min(threads, len(tasks))
        while len(self._rooms) < lanes:
            self._rooms.append(self._make_room())
        # A thread takes the number of threads when it first computes, so the lanes' own stays 1; for the
        # model, whose results depend on it bit by bit, it is put back.
        torch.set_num_threads(1)
        try:
            if lanes <= 1:
                for task in tasks:
                    work(task, self._rooms[0])
            else:
                self._side_by_side(work, tasks, lanes, threads)
        finally:
            torch.set_num_threads(threads)

    def _side_by_side(
        self, work: Callable[[Task, Room], None], tasks: Sequence[Task], lanes: int, threads: int
    ) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="attention")
        free: SimpleQueue[Room] = SimpleQueue()
        for room in self._rooms[:lanes]:
            free.put(room)

        def in_lane(task: Task) -> None:
            room = free.get()
            try:
                work(task, room)
            finally:
                free.put(room)

        list(self._pool.map(in_lane, tasks))
