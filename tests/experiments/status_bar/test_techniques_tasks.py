from __future__ import annotations

import pytest

from experiments.status_bar.techniques_tasks import VARIANTS, BarTask, TaskKind, bar_task
from serving.errors import UsageError

ALL = [(kind, variant) for kind in TaskKind for variant in range(VARIANTS)]


@pytest.mark.parametrize(("kind", "variant"), ALL)
def test_a_seed_gives_the_same_task_twice_and_other_seeds_other_ones(kind: TaskKind, variant: int) -> None:
    assert bar_task(kind, variant, 3) == bar_task(kind, variant, 3)
    tasks = [bar_task(kind, variant, seed) for seed in range(20)]
    assert len({(task.text, task.directory, task.asked_at, task.files) for task in tasks}) == 20


@pytest.mark.parametrize(("kind", "variant"), ALL)
def test_all_work_on_the_todo_list_is_wanted_and_all_that_is_wanted_is_on_it(
    kind: TaskKind, variant: int
) -> None:
    for seed in range(5):
        task = bar_task(kind, variant, seed)
        listed = {path for work in task.work for path in work.paths}
        assert listed == {wanted.path for wanted in task.wanted} | set(task.unwanted)
        assert all(wanted.path in task.text for wanted in task.wanted)
        assert not {path for path, _ in task.files} & listed


def test_the_variants_of_a_kind_differ_in_more_than_words() -> None:
    def shape(task: BarTask) -> object:
        phone = task.phone
        return (
            len(task.wanted),
            task.wanted[0].path.count("/"),
            None if phone is None else (phone.limit, phone.needed, len(phone.answers)),
            sorted(path for path, _ in task.files),
            task.kind is not TaskKind.FILES and [wanted.path for wanted in task.wanted],
        )

    for kind in TaskKind:
        assert len({str(shape(bar_task(kind, variant, 0))) for variant in range(VARIANTS)}) == VARIANTS


def test_a_telephone_is_answered_within_the_limit_or_never() -> None:
    for variant in range(VARIANTS):
        task = bar_task(TaskKind.PHONE, variant, 0)
        assert task.phone is not None
        assert task.phone.needed <= task.phone.limit
        answered = task.wanted[0].path == "code.txt"
        assert (task.wanted[0].accepted[0] in task.phone.answers[-1]) == answered
        if answered:
            assert len(task.phone.answers) == task.phone.needed
        else:
            assert task.phone.needed == task.phone.limit


def test_a_lost_file_is_not_where_it_is_said_to_be_and_its_port_stands_in_no_other_file() -> None:
    for variant in range(VARIANTS):
        for seed in range(5):
            task = bar_task(TaskKind.LOST_FILE, variant, seed)
            port = task.wanted[0].accepted[0]
            assert all(f"Read {path} " not in task.text for path, _ in task.files)
            assert port not in task.text
            assert [port in text for _, text in task.files] == [True, False]


@pytest.mark.parametrize(("variant", "seed"), [(-1, 0), (VARIANTS, 0), (0, -1)])
def test_other_variants_and_seeds_are_refused(variant: int, seed: int) -> None:
    with pytest.raises(UsageError, match="Expected a variant"):
        bar_task(TaskKind.FILES, variant, seed)
