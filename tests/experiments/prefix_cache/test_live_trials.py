"""Whole trials of the live study against a script: the real loop, tools, template and prediction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.framework import SaltScope, TrialContext, TrialOutcome, TrialSpec
from experiments.framework.arms import NULL_REBUILD, resolve
from experiments.framework.served_model import ServedModel
from experiments.prefix_cache import PrefixCacheLiveStudy
from experiments.prefix_cache.arms import APPEND_ONLY
from experiments.prefix_cache.folder import question_tools
from experiments.prefix_cache.live import LIVE
from experiments.workloads.file_questions import FileQuestion, file_question
from serving.errors import InequalityError
from serving.models import ModelFolder
from tests.support.caching_client import CachingClient
from tests.support.tiny_model import write_tiny_folder

BLOCK = 16
QUESTION = file_question(0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("model"), "qwen2_5")


def read(path: str) -> str:
    call = {"name": "read_file", "arguments": {"path": path}}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def finish(*values: str) -> str:
    arguments = dict(zip(("first", "second", "third"), values, strict=True))
    return f"<tool_call>\n{json.dumps({'name': 'finish', 'arguments': arguments})}\n</tool_call>"


def right(question: FileQuestion) -> list[str]:
    return [
        *(read(fact.path) for fact in question.facts),
        finish(*(fact.value for fact in question.facts)),
    ]


def work(
    folder: Path, arm: str, replies: Sequence[str], *, reuses: bool = True
) -> tuple[TrialOutcome, CachingClient]:
    study = PrefixCacheLiveStudy("tiny", block_size=BLOCK)
    chosen = next(one for one in study.arms if one.name == arm)
    client = CachingClient(folder, BLOCK, replies=list(replies), forgets=not reuses)
    model = ModelFolder.model_construct(name="tiny", path=folder, reasoning_parser=None, tool_parser="hermes")
    context = TrialContext(
        arm=chosen,
        factors=resolve(study.base, chosen),
        target=ServedModel(client, model, BLOCK, 100_000, 40_000),  # type: ignore[arg-type]
        salt="s",
        attempt=1,
    )
    return study.run_trial(TrialSpec(task="file-question-0", seed=0), context), client


@pytest.mark.parametrize("arm", [APPEND_ONLY, "clock-by-tool", "sliding-window", "token-in"])
def test_a_task_that_is_worked_out_is_solved_and_every_call_is_predicted(folder: Path, arm: str) -> None:
    outcome, client = work(folder, arm, right(QUESTION))
    assert outcome.succeeded
    assert outcome.measures["facts_found"] == outcome.measures["facts"] == 3
    assert outcome.measures["iterations"] == outcome.measures["ids_equal"] == len(client.requests) == 4
    assert outcome.measures["repeated_calls"] == 0
    assert all(call.cached_tokens == call.predicted_tokens is not None for call in outcome.calls)
    computed = sum((call.prompt_tokens or 0) - (call.cached_tokens or 0) for call in outcome.calls)
    assert outcome.measures["uncached_tokens"] == computed


def test_the_window_loses_the_question_before_the_answer(folder: Path) -> None:
    _, client = work(folder, "sliding-window", right(QUESTION))
    last = client.requests[-1].messages  # type: ignore[union-attr]
    assert QUESTION.text not in str(last)
    _, whole = work(folder, APPEND_ONLY, right(QUESTION))
    assert QUESTION.text in str(whole.requests[-1].messages)  # type: ignore[union-attr]


def test_a_wrong_answer_fails_its_task_and_its_repeats_are_counted(folder: Path) -> None:
    reads = [read(fact.path) for fact in QUESTION.facts]
    outcome, _ = work(folder, APPEND_ONLY, [reads[0], *reads, finish("I", "do not", "know")])
    assert not outcome.succeeded
    assert outcome.measures["facts_found"] == 0
    assert (outcome.measures["tool_calls"], outcome.measures["repeated_calls"]) == (5, 1)


def test_no_answer_is_taken_before_every_file_was_read_and_each_result_names_the_next_step(
    folder: Path,
) -> None:
    values = [fact.value for fact in QUESTION.facts]
    outcome, client = work(folder, APPEND_ONLY, [finish(*values), *right(QUESTION)])
    assert outcome.succeeded
    assert outcome.measures["iterations"] == 5, "an answer that was guessed ended the work"
    said = [str(request.messages[-1]["content"]) for request in client.requests[1:]]  # type: ignore[union-attr]
    paths = [fact.path for fact in QUESTION.facts]
    assert f"{paths[0]} has not been read yet" in said[0]
    hints = [f"read_file {paths[1]}", f"read_file {paths[2]}", "finish, with all values"]
    assert all(text.endswith(f"[next: {hint}]") for text, hint in zip(said[1:], hints, strict=True))
    assert not any(value in hint for value in values for hint in hints)


def test_the_tools_are_told_alike_whatever_the_question() -> None:
    first, *others = (question_tools(file_question(number)).specs for number in range(4))
    assert all(specs == first for specs in others)


def test_a_model_that_never_answers_gave_up_and_failed(folder: Path) -> None:
    paths = [fact.path for fact in QUESTION.facts] * 3
    outcome, _ = work(folder, APPEND_ONLY, [read(path) for path in paths])
    assert not outcome.succeeded
    assert outcome.measures["gave_up"] is not None
    assert outcome.outcome.startswith("gave up")


def test_the_null_arm_reads_the_same_ids(folder: Path) -> None:
    one, _ = work(folder, APPEND_ONLY, right(QUESTION))
    other, _ = work(folder, NULL_REBUILD, right(QUESTION))
    assert [e.prompt_token_ids for e in one.exchanges] == [e.prompt_token_ids for e in other.exchanges]


def test_reuse_that_was_not_predicted_stops_the_run(folder: Path) -> None:
    with pytest.raises(InequalityError, match="Cached tokens"):
        work(folder, APPEND_ONLY, right(QUESTION), reuses=False)


def test_costs_are_measured_alone_and_under_a_salt_of_their_own() -> None:
    study = PrefixCacheLiveStudy("tiny")
    assert study.concurrency == 1
    assert study.salt_scope is SaltScope.ATTEMPT
    assert tuple(arm.name for arm in study.arms) == LIVE
