"""A scripted run over real templates: what each request repeats of the one before, down to the token."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.agent.drift import drifts, extension
from experiments.agent.events import Answer, CallFinished, ToolStarted
from experiments.agent.loop import run_turn
from experiments.agent.settings import TurnSettings
from experiments.agent.tokenin import TokenInCaller
from serving.assembler import Trajectory
from serving.call import Caller, DecodeOptions, MeasuredCall
from serving.chat import ChatRenderer
from serving.explain import MissCause
from serving.models import ModelFolder
from tests.support.made_tools import MadeTools, contract
from tests.support.scripted import CONTEXT
from tests.support.scripted_client import ScriptedClient
from tests.support.tiny_model import write_tiny_folder

LOOK = 'I look.\n<tool_call>\n{"name": "look", "arguments": {"x": 1}}\n</tool_call>'
TWO = (
    '<tool_call>\n{"name": "look", "arguments": {"x": 2}}\n</tool_call>\n'
    '<tool_call>\n{"name": "list", "arguments": {}}\n</tool_call>'
)
SPACED = '<tool_call>\n{"name": "look", "arguments": {"x":3}}\n</tool_call>'
"""Spaces that no template writes: sent back through the chat surface they come out otherwise."""
BARE = '{"name": "look", "arguments": {"x": 6}}'
"""As small models write calls; sent back through the chat surface they come out in the template's tags."""
THOUGHT = (
    '<think>\nLet me see.\n</think>\n\n<tool_call>\n{"name": "look", "arguments": {"x": 4}}\n</tool_call>'
)


def play(
    folder: Path, template: str, replies: list[str], *, token_in: bool
) -> tuple[list[MeasuredCall], list[object]]:
    path = write_tiny_folder(folder, template)
    model = ModelFolder.model_construct(name="tiny", path=path)
    client = ScriptedClient(ChatRenderer(path), [*replies, "The end."])
    made = TokenInCaller if token_in else Caller
    caller = made(client, model, block_size=16, strict=False)  # type: ignore[operator]
    tools = MadeTools((contract("look"), contract("list")))
    settings = TurnSettings(
        context=CONTEXT, window=9000, decode=DecodeOptions(max_tokens=99), salt="s", token_in=token_in
    )
    start = Trajectory(system="Look with the tools.", tools=tools.specs, turns=())
    events = list(run_turn(caller, tools, start, "What is here?", settings))
    assert isinstance(events[-1], Answer)
    calls = [event.call for event in events if isinstance(event, CallFinished)]
    assert len(calls) == len(replies) + 1
    assert all(isinstance(call, MeasuredCall) and call.ids_agree for call in calls)
    return calls, events


@pytest.mark.parametrize("template", ["qwen3", "qwen2_5"])
def test_every_request_extends_the_one_before_over_the_chat_surface(template: str, tmp_path: Path) -> None:
    calls, _ = play(tmp_path, template, [LOOK, TWO, LOOK.replace("1", "5")], token_in=False)
    for before, now in pairwise(calls):
        found = extension(before, now)
        assert found.of_prompt
        assert found.of_answer or found.cause is not None
    # Spelt as the template spells it, an answer comes back in its own tokens.
    assert drifts(calls) == Counter()


@pytest.mark.parametrize("template", ["qwen3", "qwen2_5"])
def test_what_the_chat_surface_writes_anew_is_counted_by_its_cause(template: str, tmp_path: Path) -> None:
    calls, _ = play(tmp_path, template, [LOOK, SPACED, BARE, LOOK.replace("1", "5")], token_in=False)
    assert all(extension(before, now).of_prompt for before, now in pairwise(calls))
    assert drifts(calls) == Counter({MissCause.SERVER_ARGUMENTS: 1, MissCause.CALL_FORM: 1})


@pytest.mark.parametrize("template", ["qwen3", "qwen2_5"])
def test_the_token_in_surface_extends_prompt_and_answer_always(template: str, tmp_path: Path) -> None:
    replies = [LOOK, SPACED, BARE, TWO, THOUGHT]
    calls, events = play(tmp_path, template, replies, token_in=True)
    pairs = [extension(before, now) for before, now in pairwise(calls)]
    assert all(pair.of_prompt and pair.of_answer for pair in pairs)
    assert drifts(calls) == Counter()
    for call in calls:
        rendered = call.rendered
        assert (
            sum(rendered.tokens_by_item().values()) == len(rendered.token_ids) == len(rendered.token_offsets)
        )
        assert rendered.token_offsets == tuple(sorted(rendered.token_offsets))
    # The parser of the tags is ours here, and it sees calls while they are written.
    assert [event.early for event in events if isinstance(event, ToolStarted)] == [
        True,
        True,
        False,
        True,
        True,
        True,
    ]


def test_ids_of_an_answer_from_which_a_secret_was_cut_are_not_sent_again(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    calls, _ = play(tmp_path, "qwen3", [f"I found {secret}.\n{LOOK}", TWO], token_in=True)
    tokenizer = ChatRenderer(tmp_path).tokenizer
    assert all(secret not in tokenizer.decode(call.rendered.token_ids) for call in calls)
    found = [extension(before, now) for before, now in pairwise(calls)]
    assert [pair.of_answer for pair in found] == [False, True]
    assert all(pair.of_prompt for pair in found)
