from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.agent.events import Answer, ToolFinished
from experiments.agent.loop import run_turn
from experiments.agent.settings import TurnSettings
from experiments.agent.tools import GroupName, Toolbox, ToolOutcome, Workspace, World, build_toolbox
from experiments.agent.tools.tool import MAX_OUTCOME_CHARACTERS
from serving.assembler import Trajectory
from serving.call import DecodeOptions
from serving.text import find_surrogate
from tests.support.examples import FULL, INVARIANT
from tests.support.hostile import PATHS, arguments_for, snapshot
from tests.support.scripted import CONTEXT, ScriptedCaller, exchange, received

SECRET = "the-secret-outside"
OFFLINE = tuple(name for name in GroupName if name is not GroupName.PYTHON)
"""All groups but the one whose every call starts a process; that one is in `sandbox/test_containment.py`."""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30) | st.sampled_from(PATHS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def outside(root: Path) -> dict[str, tuple[int, int, int, str]]:
    return {name: facts for name, facts in snapshot(root.parent).items() if not name.startswith("root")}


def require_harmless(outcome: ToolOutcome) -> None:
    outcome.text.encode()
    json.dumps(dict(outcome.verified))
    assert len(outcome.text) <= MAX_OUTCOME_CHARACTERS + 1_000
    assert SECRET not in outcome.text and "root:x:0:0" not in outcome.text
    assert outcome.ok is (outcome.failure is None)


def tools_in(root: Path) -> Toolbox:
    (root / "dangling.txt").symlink_to(root.parent / "made-through-a-link.txt")
    return build_toolbox(OFFLINE, World(Workspace(root)))


def test_thousands_of_hostile_arguments_are_refused_or_done_inside(root: Path) -> None:
    tools, before, count = tools_in(root), outside(root), 0
    for spec in tools.specs:
        for arguments in arguments_for(spec):
            require_harmless(tools.run(spec.name, arguments))
            count += 1
    assert outside(root) == before
    assert count > 3_000


def test_the_loop_answers_every_hostile_call_and_leaves_nothing_outside_changed(root: Path) -> None:
    """As native calls of a model, a hundred a message: each gets one result, and the turn goes on to its answer."""
    tools, before = tools_in(root), outside(root)
    hostile = [(spec.name, text) for spec in tools.specs for text in arguments_for(spec)]
    # What UTF-8 cannot carry comes over no wire; the megabytes are the toolbox's own test.
    chosen = [(name, text) for name, text in hostile if find_surrogate(text) is None and len(text) < 50_000]
    chosen = chosen if FULL else chosen[::8]
    messages = [chosen[start : start + 100] for start in range(0, len(chosen), 100)]
    replies = [
        exchange("", *(received(name, text, f"{n}-{i}", i) for i, (name, text) in enumerate(message)))
        for n, message in enumerate(messages)
    ]
    settings = TurnSettings(
        context=CONTEXT,
        window=10**9,
        decode=DecodeOptions(max_tokens=9),
        salt="s",
        max_iterations=len(replies) + 1,
        max_same_calls=10**6,
    )
    caller = ScriptedCaller([*replies, exchange("done")])
    start = Trajectory(tools=tools.specs, turns=())
    events = list(run_turn(caller, tools, start, "Go.", settings))
    assert isinstance(events[-1], Answer)
    finished = [event for event in events if isinstance(event, ToolFinished)]
    assert len(finished) == len(chosen) > 400
    for event in finished:
        event.outcome.text.encode()
        assert SECRET not in event.outcome.text
    assert outside(root) == before


def test_a_tool_that_does_not_exist_is_an_outcome(root: Path) -> None:
    tools = tools_in(root)
    for name in ("", "os.system", "read_file\0", "READ_FILE", "__class__", "x" * 10**6, "\ud800"):
        outcome = tools.run(name, "{}")
        require_harmless(outcome)
        assert not outcome.ok and "There is no tool" in outcome.text


@settings(INVARIANT, max_examples=2_000 if FULL else 100)
@given(data=st.data())
def test_no_argument_raises_or_leaves_the_root(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("property") / "root"
    (root / "src").mkdir(parents=True)
    (root / "README.md").write_text("text\n")
    (root.parent / "secret.txt").write_text(SECRET)
    (root / "out").symlink_to(root.parent)
    tools, before = build_toolbox(OFFLINE, World(Workspace(root))), outside(root)
    for _ in range(3):
        spec = data.draw(st.sampled_from(tools.specs))
        names = list(spec.parameters["properties"]) if isinstance(spec.parameters["properties"], dict) else []
        given_values = {name: data.draw(json_values) for name in names}
        require_harmless(tools.run(spec.name, json.dumps(given_values)))
    assert outside(root) == before


def test_arguments_that_are_any_text_never_raise(root: Path) -> None:
    tools = tools_in(root)

    @settings(max_examples=2_000 if FULL else 200)
    @given(name=st.sampled_from([spec.name for spec in tools.specs]), arguments=st.text())
    def check(name: str, arguments: str) -> None:
        require_harmless(tools.run(name, arguments))

    check()


@pytest.mark.skipif(not FULL, reason="starts a process for each of them")
def test_hostile_arguments_of_the_interpreter_are_contained(root: Path) -> None:
    tools, before = build_toolbox([GroupName.PYTHON]), outside(root)
    for arguments in arguments_for(tools.specs[0]):
        require_harmless(tools.run("run_python", arguments))
    assert outside(root) == before
    assert not list(root.rglob("*.part"))
