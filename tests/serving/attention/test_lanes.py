"""Tasks run side by side, on one thread each, and the number of threads is put back."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from serving.attention.lanes import Lanes


@pytest.fixture(autouse=True)
def two_threads(one_thread: None) -> Iterator[None]:
    torch.set_num_threads(2)
    yield


def test_every_task_is_done_once_and_no_two_share_a_room() -> None:
    busy: set[int] = set()
    done: list[int] = []
    clashes: list[int] = []

    def work(task: int, room: list[int]) -> None:
        if id(room) in busy:
            clashes.append(task)
        busy.add(id(room))
        torch.randn(200, 200) @ torch.randn(200, 200)
        done.append(task)
        busy.discard(id(room))

    lanes: Lanes[int, list[int]] = Lanes(list)
    for _ in range(3):
        lanes.run(work, range(20), one_by_one=False)
    assert sorted(done) == sorted([*range(20)] * 3)
    assert not clashes


def test_a_task_computes_on_one_thread_and_the_caller_as_before() -> None:
    seen: list[int] = []
    lanes: Lanes[int, None] = Lanes(lambda: None)
    for one_by_one in (False, True):
        lanes.run(lambda _task, _room: seen.append(torch.get_num_threads()), range(6), one_by_one=one_by_one)
        assert torch.get_num_threads() == 2
    assert set(seen) == {1}


def test_little_work_stays_in_the_callers_thread() -> None:
    names: set[str] = set()
    lanes: Lanes[int, None] = Lanes(lambda: None)
    lanes.run(lambda _task, _room: names.add(threading.current_thread().name), range(3), one_by_one=True)
    assert names == {threading.current_thread().name}


def test_an_error_in_a_task_is_raised_and_the_threads_are_put_back() -> None:
    def fail(task: int, _room: None) -> None:
        if task == 3:
            raise ZeroDivisionError

    lanes: Lanes[int, None] = Lanes(lambda: None)
    with pytest.raises(ZeroDivisionError):
        lanes.run(fail, range(6), one_by_one=False)
    assert torch.get_num_threads() == 2
