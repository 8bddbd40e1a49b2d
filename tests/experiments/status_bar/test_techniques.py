"""Whole trials against a stub: a real template, a real loop and real tools, and a model that follows a script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from experiments.framework import InequalityError, InfrastructureError, TrialContext, TrialOutcome, TrialSpec
from experiments.framework.arms import NULL_REBUILD, resolve
from experiments.framework.served_model import ServedModel
from experiments.framework.trials import TrialRecord
from experiments.status_bar import StatusBarTechniquesStudy
from experiments.status_bar.techniques_design import ARMS, NONE, SENTENCES
from experiments.status_bar.techniques_tasks import BarTask, TaskKind, bar_task
from experiments.status_bar.techniques_world import OFFERED
from serving.assembler.status_bar import Technique
from serving.chat import ChatRenderer
from serving.client import ErrorKind, ExchangeError, Request
from serving.models import ModelFolder
from tests.support.scripted_client import ScriptedClient, ScriptedStream
from tests.support.technique_records import record
from tests.support.tiny_model import write_tiny_folder

ALL_BUT_SYSTEM = "times-counters-todo-errors"
ALL_BUT_ERRORS = "system-times-counters-todo"


@dataclass
class Recording(ScriptedClient):
    """Keeps the requests; `error` breaks each of them."""

    requests: list[Request] = field(default_factory=list)
    error: ExchangeError | None = None

    def stream(self, request: Request, *, manifest_id: str | None = None) -> ScriptedStream:
        self.requests.append(request)
        stream = super().stream(request, manifest_id=manifest_id)
        stream.exchange = stream.exchange.model_copy(update={"error": self.error})
        return stream


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("model"), "qwen2_5")


def says(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def finishes(words: str = "All is done.") -> str:
    return says("finish", answer=words)


def writes(task: BarTask) -> Iterator[str]:
    return (says("write_file", path=one.path, text=one.accepted[0]) for one in task.wanted)


def run(
    folder: Path,
    task: BarTask,
    replies: Sequence[str],
    arm: str = NONE,
    error: ExchangeError | None = None,
) -> tuple[TrialOutcome, list[dict[str, object]]]:
    """The trial's outcome, and the body of each request."""
    study = StatusBarTechniquesStudy("tiny", block_size=16)
    chosen = next(one for one in ARMS if one.name == arm)
    client = Recording(ChatRenderer(folder), replies, error=error)
    model = ModelFolder.model_construct(name="tiny", path=folder, tool_parser="hermes")
    context = TrialContext(
        arm=chosen,
        factors=resolve(study.base, chosen),
        target=ServedModel(client, model, 16, 10_000, 12_000),  # type: ignore[arg-type]
        salt="s",
        attempt=1,
    )
    spec = TrialSpec(task=f"{task.kind}-{task.variant}", seed=task.seed)
    outcome = study.run_trial(spec, context)
    return outcome, [dict(request.body()) for request in client.requests]


PHONE = bar_task(TaskKind.PHONE, 0, 0)
LOST = bar_task(TaskKind.LOST_FILE, 0, 0)


def dials(times: int) -> list[str]:
    assert PHONE.phone is not None
    return [says("make_call", number=PHONE.phone.number)] * times


def text_of(body: dict[str, object]) -> str:
    """All that the model reads of the conversation."""
    return "\n".join(str(message["content"]) for message in body["messages"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", TaskKind)
def test_a_model_that_does_as_asked_solves_every_kind(kind: TaskKind, folder: Path) -> None:
    task = bar_task(kind, 0, 0)
    calls = dials(2) if kind is TaskKind.PHONE else []
    outcome, bodies = run(folder, task, [*calls, *writes(task), finishes()], ALL_BUT_SYSTEM)
    assert outcome.succeeded
    assert outcome.outcome == "All is done."
    assert outcome.measures["success"] is True
    assert outcome.measures["subtasks_missed"] == outcome.measures["repeated_calls"] == 0
    assert outcome.measures["iterations"] == outcome.measures["ids_equal"] == len(bodies)
    assert outcome.measures["form_native"] == len(bodies)
    grammars = [json.loads(body["structured_outputs"]["structural_tag"]) for body in bodies]  # type: ignore[index]
    assert all(grammar["format"]["stop_after_first"] for grammar in grammars)
    assert len(outcome.exchanges) == len(outcome.calls) == len(outcome.manifests) == len(bodies)


def test_the_bar_counts_against_the_limit_and_a_call_beyond_it_is_made_and_counted(folder: Path) -> None:
    outcome, bodies = run(folder, PHONE, [*dials(3), *writes(PHONE), finishes()], ALL_BUT_SYSTEM)
    assert 'calls of "make_call": 0/2' in text_of(bodies[0])
    assert 'calls of "make_call": 2/2 (none left)' in text_of(bodies[2])
    assert (outcome.measures["violations"], outcome.measures["dialled"]) == (1, 3)
    assert (outcome.succeeded, outcome.measures["subtasks_missed"]) == (False, 0)


def test_the_todo_list_the_clock_and_the_times_move_with_the_work(folder: Path) -> None:
    task = bar_task(TaskKind.FILES, 0, 0)
    _, bodies = run(folder, task, [*writes(task), finishes()], ALL_BUT_ERRORS)
    first, second = text_of(bodies[0]), text_of(bodies[1])
    assert (first.count("[pending]"), first.count("[completed]")) == (3, 0)
    assert (second.count("[pending]"), second.count("[completed]")) == (2, 1)
    assert f'cwd: "/{task.directory}"' in first
    assert f"{task.asked_at:%H:%M}" in first
    assert "last tool result: none" in first
    assert "last tool result: none" not in second


def test_a_failed_read_is_shown_with_its_arguments_and_recovery_is_counted(folder: Path) -> None:
    read = says("read_file", path="config/server.txt")
    find = says("find_files", pattern="*server*")
    replies = [read, find, read, *writes(LOST), finishes()]
    outcome, bodies = run(folder, LOST, replies, ALL_BUT_SYSTEM)
    assert "errors: none" in text_of(bodies[0])
    assert 'error in "read_file"' in text_of(bodies[1])
    assert "not_found" in text_of(bodies[1])
    measures = outcome.measures
    assert (measures["errors_met"], measures["recovered"], measures["repeated_calls"]) == (2, True, 1)


def test_a_model_that_gives_up_has_missed_what_is_not_there(folder: Path) -> None:
    outcome, _ = run(
        folder, LOST, [says("read_file", path="config/server.txt"), finishes("It is not there.")]
    )
    measures = outcome.measures
    assert (measures["subtasks_missed"], measures["missed"], measures["recovered"]) == (1, "port.txt", False)
    assert not outcome.succeeded


def test_a_model_that_only_repeats_itself_is_stopped_and_the_reason_kept(folder: Path) -> None:
    outcome, _ = run(folder, LOST, [says("list_dir")] * 5)
    assert outcome.measures["gave_up"] == "repeated_call"
    assert outcome.outcome == "gave up: repeated_call"
    assert outcome.measures["repeated_calls"] == 4


def test_without_techniques_there_is_no_bar_and_no_word_of_one(folder: Path) -> None:
    _, bodies = run(folder, PHONE, [finishes("No.")])
    assert "agent_status" not in text_of(bodies[0])


def test_the_arms_differ_in_the_sentences_and_the_bar_and_nothing_else(folder: Path) -> None:
    bare = run(folder, PHONE, [finishes("No.")])[1][0]
    full = run(folder, PHONE, [finishes("No.")], ALL_BUT_SYSTEM)[1][0]
    assert bare["tools"] == full["tools"]
    assert [tool["function"]["name"] for tool in full["tools"]] == sorted(OFFERED)  # type: ignore[index]
    system, user = (message["content"] for message in full["messages"])  # type: ignore[union-attr]
    bare_system, bare_user = (message["content"] for message in bare["messages"])  # type: ignore[union-attr]
    sentences = [SENTENCES[one] for one in Technique if one is not Technique.SYSTEM_STATE]
    assert system == " ".join([bare_system, *sentences])
    assert user.startswith(bare_user)
    assert user[len(bare_user) :].strip().startswith("<agent_status>")


def test_the_null_arm_reads_the_ids_of_the_arm_without_techniques(folder: Path) -> None:
    replies = [*dials(1), *writes(PHONE), finishes()]
    base, null = (run(folder, PHONE, replies, arm)[0] for arm in (NONE, NULL_REBUILD))
    sides = [kept(arm, outcome) for arm, outcome in ((NONE, base), (NULL_REBUILD, null))]
    study = StatusBarTechniquesStudy("tiny")
    study.verify(sides)
    other = sides[1].exchanges[0].model_copy(update={"prompt_token_ids": (1, 2)})
    with pytest.raises(InequalityError, match="Prompt ids of call 0 of phone-0#0"):
        study.verify([sides[0], sides[1].model_copy(update={"exchanges": (other,)})])


def test_a_request_that_the_server_refuses_is_a_failed_task_and_a_dead_server_is_no_result(
    folder: Path,
) -> None:
    refused = ExchangeError(kind=ErrorKind.HTTP_STATUS, sentence="too long", status=400)
    outcome, _ = run(folder, PHONE, [finishes("No.")], error=refused)
    assert (outcome.succeeded, outcome.measures) == (False, {"success": False})
    gone = ExchangeError(kind=ErrorKind.UNREACHABLE, sentence="nobody there")
    with pytest.raises(InfrastructureError, match="nobody there"):
        run(folder, PHONE, [finishes("No.")], error=gone)


def kept(arm: str, outcome: TrialOutcome) -> TrialRecord:
    return record(arm, "phone-0", 0).model_copy(update={"exchanges": outcome.exchanges})
