"""A trajectory folder: written step by step, opened again, and true to what was sent."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from experiments.agent.callform import CallForm
from experiments.agent.events import CallStarted
from experiments.agent.loop import run_turn
from experiments.agent.saving import (
    STEPS_FILE,
    TRAJECTORY_FILE,
    OpenedRun,
    SavedRun,
    TrajectoryWriter,
    open_run,
)
from experiments.agent.settings import SECRETS, TurnSettings
from serving.assembler import BarPolicy, ContextPolicy, FixedCounter, Trajectory, Verdict, replay
from serving.call import DecodeOptions
from serving.client import Exchange
from serving.errors import LabError, UsageError
from tests.support.made_tools import MadeTools, contract
from tests.support.scripted import CONTEXT, ScriptedCaller, exchange, received

# Built at run time, so that no scanner takes this file for a leak.
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
POLICY = ContextPolicy(status_bar=BarPolicy())
TOOLS = (contract("look"), contract("list"))


def write(
    folder: Path,
    *replies: Exchange,
    task: str = "Go.",
    stop_after: int | None = None,
    caller: ScriptedCaller | None = None,
) -> ScriptedCaller:
    settings = TurnSettings(
        context=CONTEXT, window=9000, decode=DecodeOptions(max_tokens=99), salt="s", policy=POLICY, run_id="r"
    )
    caller, tools = caller or ScriptedCaller(replies), MadeTools(TOOLS)
    run = SavedRun(task=task, model="scripted", policy=POLICY, started_at=CONTEXT.now)
    turn = run_turn(caller, tools, Trajectory(tools=tools.specs, turns=()), task, settings)
    with TrajectoryWriter(folder, run, SECRETS) as writer, closing(turn):
        for event in turn:
            writer.take(event)
            if isinstance(event, CallStarted) and event.iteration == stop_after:
                break
    return caller


def two_steps(folder: Path, **more: object) -> tuple[OpenedRun, ScriptedCaller]:
    caller = write(
        folder,
        exchange("", received("look", "{}", "a"), received("nope", "{}", "b", 1), reasoning="hm"),
        exchange('{"name": "list", "arguments": {"x": 1}}'),
        exchange("done"),
        **more,
    )
    return open_run(folder), caller


def test_a_folder_opens_with_every_step_as_it_was_sent(tmp_path: Path) -> None:
    opened, caller = two_steps(tmp_path / "run")
    assert [step.messages for step in opened.steps] == [start.packet.messages for start in caller.started]
    assert [step.form for step in opened.steps] == [CallForm.NATIVE, CallForm.BARE, CallForm.NONE]
    assert [[(tool.name, tool.ok) for tool in step.ran] for step in opened.steps] == [
        [("look", True), ("nope", False)],
        [("list", True)],
        [],
    ]
    assert opened.end is not None
    assert (opened.end.reason, opened.end.text, opened.end.trajectory.calls) == (None, "done", 3)


def test_every_step_can_be_replayed_exactly(tmp_path: Path) -> None:
    opened, _ = two_steps(tmp_path / "run")
    for step in opened.steps:
        again = replay(step.manifest, request=step.request, policy=opened.run.policy, renderer=FixedCounter())
        assert again.verdict is Verdict.EXACT


def test_an_interrupted_run_keeps_its_complete_steps_and_has_no_end(tmp_path: Path) -> None:
    opened, _ = two_steps(tmp_path / "run", stop_after=2)
    assert len(opened.steps) == 2
    assert opened.end is None


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    two_steps(tmp_path / "run")
    path = tmp_path / "run" / STEPS_FILE
    path.write_bytes(path.read_bytes()[:-40])
    assert len(open_run(tmp_path / "run").steps) == 2


def test_a_secret_is_in_no_file_and_the_step_that_wrote_it_is_not_replayable(tmp_path: Path) -> None:
    write(
        tmp_path / "run",
        exchange(f"I found {SECRET}.", received("look", f'{{"x": "{SECRET}"}}')),
        exchange("done"),
        task=f"Use {SECRET}.",
    )
    for path in (tmp_path / "run").iterdir():
        assert SECRET not in path.read_text()
    steps = open_run(tmp_path / "run").steps
    assert [step.replayable for step in steps] == [False, True]
    assert steps[0].exchange["output_token_ids"] is None


def test_a_step_is_on_the_disk_as_soon_as_its_last_tool_has_answered(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    seen: list[int] = []

    class Looking(ScriptedCaller):
        def start(self, *arguments, **more):
            seen.append(len(open_run(folder).steps))
            return super().start(*arguments, **more)

    replies = [exchange("", received("look", "{}", "a")), exchange("<tool_call>"), exchange("done")]
    write(folder, caller=Looking(replies))
    assert seen == [0, 1, 2]
    assert len(open_run(folder).steps) == 3


def test_what_was_sent_is_what_is_stored(tmp_path: Path) -> None:
    """Packet and the rest of the request's body are the body: nothing of it is lost, nothing kept twice."""
    body = {"model": "m", "messages": [{"role": "x"}], "tools": [], "max_tokens": 5, "cache_salt": "s"}
    reply = exchange("done").model_copy(update={"request": body})
    write(tmp_path / "run", reply)
    (step,) = open_run(tmp_path / "run").steps
    assert step.exchange["request"] == {"model": "m", "max_tokens": 5, "cache_salt": "s"}


@pytest.mark.parametrize("text", ["a\u2028b\x0bc\x85d\x1ce", "\U0001f600 ü", "\\ud800"])
def test_no_character_of_a_text_breaks_a_line(text: str, tmp_path: Path) -> None:
    write(tmp_path / "run", exchange(text))
    opened = open_run(tmp_path / "run")
    assert opened.end is not None
    assert opened.end.text == opened.steps[0].exchange["text"] == text


@pytest.mark.parametrize(
    ("stop_after", "words"), [(None, "holds a run \\("), (1, "run that was interrupted")]
)
def test_a_folder_with_a_run_is_refused_and_says_how_to_look_at_it(
    stop_after: int | None, words: str, tmp_path: Path
) -> None:
    two_steps(tmp_path / "run", stop_after=stop_after)
    with pytest.raises(UsageError, match=rf"{words}.*ctxlab trajectory.*name another"):
        two_steps(tmp_path / "run")


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="in use"):
        two_steps(tmp_path)


@pytest.mark.parametrize("damage", ["run.json", STEPS_FILE, TRAJECTORY_FILE])
def test_a_damaged_file_is_named(damage: str, tmp_path: Path) -> None:
    two_steps(tmp_path / "run")
    (tmp_path / "run" / damage).write_text("{\n{\n")
    with pytest.raises(LabError, match=damage):
        open_run(tmp_path / "run")
