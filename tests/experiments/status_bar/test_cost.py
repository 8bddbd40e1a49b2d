from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from experiments.framework import CallRecord, TrialRecord
from experiments.status_bar.cost import ARMS, scripted_loop, with_bars
from experiments.status_bar.cost_analysis import APPEND, NO_BAR, REPLACE, Loop, analyse
from serving.assembler import StatusBar, ToolStep
from serving.assembler.break_even import BarMode, StatusRun, advise, simulate_status
from serving.errors import UsageError
from tests.support.made_record import made_record

HEAD = 320


def played(run: StatusRun, updates: int, block_size: int) -> dict[str, list[tuple[int, int]]]:
    """What a server would report of a replay of these sizes, call by call: every token by name, nothing assumed."""
    sides: dict[str, list[tuple[int, int]]] = {}
    for arm in (APPEND, REPLACE, NO_BAR):
        log = [("head", token) for token in range(HEAD)]
        stored: list[list[tuple[str, int]]] = []
        calls: list[tuple[int, int]] = []
        for number in range(updates * run.calls_per_update):
            if number % run.calls_per_update == 0 and arm != NO_BAR:
                if arm == REPLACE:
                    log = [token for token in log if not token[0].startswith("bar")]
                log = log + [(f"bar {number}", token) for token in range(run.status_tokens)]
            reused = max((_common(log, one) for one in stored), default=0)
            calls.append((len(log), reused // block_size * block_size))
            stored.append(log)
            growth = run.tokens_between_updates // run.calls_per_update
            log = log + [(f"step {number}", token) for token in range(growth)]
        sides[arm] = calls
    return sides


def _common(one: list[tuple[str, int]], other: list[tuple[str, int]]) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize("every", [2, 4])
@pytest.mark.parametrize("block_size", [1, 32])
def test_the_measured_crossover_is_where_the_played_loop_has_it(every: int, block_size: int) -> None:
    run = StatusRun(
        status_tokens=150,
        tokens_between_updates=200,
        output_tokens=0,
        calls_per_update=every,
        head_tokens=HEAD,
    )
    loop = Loop("loop", every, block_size, played(run, 12, block_size))
    for ratio in (0.1, 0.25, 0.5):
        costs = [
            [
                simulate_status(run, n, mode, block_size=block_size).price(ratio)
                for mode in (BarMode.REPLACE, BarMode.APPEND)
            ]
            for n in range(1, 13)
        ]
        first = next((n for n, (replace, append) in enumerate(costs, 1) if replace < append), None)
        assert loop.crossover(ratio) == first


def test_no_crossover_within_the_trial_is_none_and_not_a_number() -> None:
    same = [(100, 50)] * 6
    loop = Loop("loop", 1, 32, {APPEND: same, REPLACE: same, NO_BAR: same})
    assert loop.crossover(0.1) is None


@pytest.mark.parametrize(("every", "updates"), [(1, 5), (2, 4), (4, 3)])
def test_a_bar_comes_with_every_update_and_stays_where_it_came(every: int, updates: int) -> None:
    story = scripted_loop(0, every=every, updates=updates)
    assert story.calls == every * updates
    earlier: tuple[str, ...] = ()
    for number in range(story.calls):
        history = story.history(number)
        appended = [item.id for item in with_bars(history, every, BarMode.APPEND)]
        replaced = [item.id for item in with_bars(history, every, BarMode.REPLACE)]
        bars = number // every + 1
        assert sum(one.startswith("status-bar") for one in appended) == bars
        assert [one for one in replaced if one.startswith("status-bar")] == [f"status-bar-{bars - 1:03d}"]
        assert tuple(appended[: len(earlier)]) == earlier
        # The newest bar is where the appended ones put it: taking the others out moves nothing.
        assert [one for one in appended if one in replaced] == replaced
        assert with_bars(history, every, None) == history
        earlier = tuple(appended)


def test_conversations_grow_alike_whatever_the_calls_of_an_update() -> None:
    sizes = {
        every: sum(
            len(result.content)
            for turn in scripted_loop(1, every=every, updates=6).turns
            if isinstance(turn, ToolStep)
            for result in turn.results
        )
        for every in (1, 2, 4)
    }
    assert max(sizes.values()) < 1.4 * min(sizes.values())


def test_every_bar_has_words_of_its_own() -> None:
    log = with_bars(scripted_loop(0, every=1, updates=6).history(5), 1, BarMode.APPEND)
    texts = [item.payload.text for item in log if isinstance(item.payload, StatusBar)]
    assert len(set(texts)) == len(texts) == 6


def records(sides: dict[str, list[tuple[int, int]]], every: int) -> Iterator[TrialRecord]:
    for arm, calls in sides.items():
        yield made_record(
            "status-bar-cost",
            arm,
            f"every-{every}-updates-{len(calls) // every}",
            0,
            {
                "block_size": 32,
                "prompt_tokens": sum(prompt for prompt, _ in calls),
                "cached_tokens": sum(cached for _, cached in calls),
            },
            calls=tuple(
                CallRecord(prompt_tokens=prompt, cached_tokens=cached, predicted_tokens=cached)
                for prompt, cached in calls
            ),
        )


def test_the_conclusion_names_the_measured_number_and_both_formulas() -> None:
    run = StatusRun(
        status_tokens=150, tokens_between_updates=200, output_tokens=0, calls_per_update=2, head_tokens=HEAD
    )
    analysis = analyse(ARMS, list(records(played(run, 12, 32), 2)))
    loop = Loop("loop", 2, 32, played(run, 12, 32))
    assert f"replacing becomes cheaper at N = {loop.crossover(0.1)}" in analysis.conclusion
    assert "corrected formula" in analysis.conclusion
    assert json.dumps(analysis.model_dump(mode="json"))
    few = analyse(ARMS, list(records(played(run, 2, 32), 2)))
    assert "not within 2 updates" in few.conclusion


def test_a_run_without_its_reference_has_no_break_even() -> None:
    run = StatusRun(
        status_tokens=150, tokens_between_updates=200, output_tokens=0, calls_per_update=2, head_tokens=HEAD
    )
    part = {APPEND: played(run, 3, 32)[APPEND]}
    with pytest.raises(UsageError, match=r"append, replace and no-bar"):
        analyse(ARMS, list(records(part, 2)))


def test_measured_and_both_formulas_stand_in_one_figure_and_change_sign_at_their_crossovers() -> None:
    run = StatusRun(
        status_tokens=150, tokens_between_updates=200, output_tokens=0, calls_per_update=2, head_tokens=HEAD
    )
    sides = played(run, 12, 32)
    loop = Loop("loop", 2, 32, sides)
    (figure,) = (
        one for one in analyse(ARMS, list(records(sides, 2))).figures if one.name == "crossover-every-2"
    )
    advice = advise(loop.inputs(0.1), block_size=32)
    expected = {
        "measured": loop.crossover(0.1),
        "corrected formula": advice.corrected.replace_first_cheaper_at,
        "published formula": advice.published.replace_first_cheaper_at,
    }
    assert [line.label for line in figure.lines] == list(expected)
    for line in figure.lines:
        cheaper = [value is not None and value < 0 for value in line.values]
        first = cheaper.index(True) + 1 if any(cheaper) else None
        wanted = expected[line.label]
        assert first == (wanted if wanted is not None and wanted <= 12 else None), line.label
    assert figure.even == 0
    assert f"from N = {loop.crossover(0.1)} on as measured" in figure.caption
