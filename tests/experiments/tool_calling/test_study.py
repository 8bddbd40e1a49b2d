"""Whole trials against a stub: a real template, a real loop and real tools, and a model that follows a script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from experiments.agent.callform import CallForm
from experiments.framework import InfrastructureError, TrialContext, TrialOutcome, TrialRecord, TrialSpec
from experiments.framework.arms import NULL_REBUILD, resolve
from experiments.framework.served_model import ServedModel
from experiments.framework.trials import CacheState, CacheTemperature, OutcomeKind
from experiments.tool_calling import ToolCallingCostStudy, ToolCallingStudy
from experiments.tool_calling import study as study_module
from experiments.tool_calling.names import AUTO, EXCLUDED, REFUSED, REQUIRED
from experiments.tool_calling.study import NULL_SEEDS
from experiments.workloads.tool_prompt_calls import RUN_PYTHON
from experiments.workloads.tool_prompts import PromptClass, ToolPrompt, tool_prompt
from serving.chat import ChatRenderer
from serving.client import ErrorKind, ExchangeError, Request
from serving.errors import InequalityError
from serving.models import ModelFolder
from tests.support.scripted_client import ScriptedClient, ScriptedStream
from tests.support.tiny_model import write_tiny_folder


@dataclass
class Recording(ScriptedClient):
    requests: list[Request] = field(default_factory=list)
    error: ExchangeError | None = None
    alters_ids: bool = False

    def stream(self, request: Request, *, manifest_id: str | None = None) -> ScriptedStream:
        self.requests.append(request)
        stream = super().stream(request, manifest_id=manifest_id)
        if self.error is not None:
            stream.exchange = stream.exchange.model_copy(update={"error": self.error})
        if self.alters_ids:
            stream.exchange = stream.exchange.model_copy(update={"prompt_token_ids": (1, 2, 3)})
        return stream


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("model"), "qwen2_5")


def native(name: str, arguments: dict[str, object]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def needed(prompt: ToolPrompt) -> list[str]:
    """What a model says that makes every expected call, in messages of one call where it has to wait."""
    said = [native(call.name, dict(call.arguments)) for call in prompt.calls]
    return said if prompt.ordered else ["\n".join(said)] if said else []


def served(folder: Path, client: ScriptedClient, *, reasons: bool = False) -> ServedModel:
    model = ModelFolder.model_construct(
        name="tiny", path=folder, reasoning_parser="qwen3" if reasons else None, tool_parser="hermes"
    )
    return ServedModel(client, model, 16, 10_000, 9_000)  # type: ignore[arg-type]


def run(
    folder: Path,
    kind: PromptClass,
    seed: int,
    replies: Sequence[str],
    *,
    arm: str = AUTO,
    reasons: bool = False,
    **client: object,
) -> tuple[TrialOutcome, Recording]:
    study = ToolCallingStudy("tiny", block_size=16)
    chosen = next(one for one in study.arms if one.name == arm)
    recording = Recording(ChatRenderer(folder), replies, **client)  # type: ignore[arg-type]
    context = TrialContext(
        arm=chosen,
        factors=resolve(study.base, chosen),
        target=served(folder, recording, reasons=reasons),
        salt="s",
        attempt=1,
    )
    return study.run_trial(TrialSpec(task=kind.value, seed=seed), context), recording


@pytest.mark.parametrize("kind", PromptClass)
def test_a_model_that_makes_the_needed_calls_and_answers_is_right_in_every_class(
    kind: PromptClass, folder: Path
) -> None:
    prompt = tool_prompt(kind, 1)
    outcome, client = run(folder, kind, 1, [*needed(prompt), "That is all."])
    assert outcome.succeeded
    assert outcome.outcome == "That is all."
    assert outcome.measures["success"] is outcome.measures["native_success"] is True
    assert outcome.measures["form_native"] == len(prompt.calls)
    assert outcome.measures["model_calls"] == outcome.measures["ids_equal"] == len(client.requests)
    assert len(outcome.exchanges) == len(outcome.calls) == len(outcome.manifests) == len(client.requests)


def test_fenced_calls_are_right_for_the_loop_and_wrong_for_a_harness_that_reads_tags_alone(
    folder: Path,
) -> None:
    prompt = tool_prompt(PromptClass.SINGLE, 0)
    call = prompt.calls[0]
    fenced = f"```json\n{json.dumps({'name': call.name, 'arguments': call.arguments})}\n```"
    outcome, _ = run(folder, PromptClass.SINGLE, 0, [fenced, "It is ten."])
    assert (outcome.measures["success"], outcome.measures["native_success"]) == (True, False)
    assert (outcome.measures["form_fenced"], outcome.measures["first_form"]) == (1, CallForm.FENCED.value)


def test_only_the_first_call_of_a_turn_is_required(folder: Path) -> None:
    prompt = tool_prompt(PromptClass.CHAINED, 0)
    replies = [*needed(prompt), "Done."]
    _, required = run(folder, PromptClass.CHAINED, 0, replies, arm=REQUIRED)
    assert [request.tool_choice for request in required.requests] == ["required", "auto", "auto"]  # type: ignore[union-attr]
    _, left = run(folder, PromptClass.CHAINED, 0, replies)
    assert {request.tool_choice for request in left.requests} == {"auto"}  # type: ignore[union-attr]


def test_the_null_arm_sends_the_same_ids(folder: Path) -> None:
    replies = [*needed(tool_prompt(PromptClass.PARALLEL, 4)), "Done."]
    one, _ = run(folder, PromptClass.PARALLEL, 4, replies)
    other, _ = run(folder, PromptClass.PARALLEL, 4, replies, arm=NULL_REBUILD)
    assert [e.prompt_token_ids for e in one.exchanges] == [e.prompt_token_ids for e in other.exchanges]
    assert one.measures == other.measures


def test_all_prompts_share_their_head(folder: Path) -> None:
    heads = set()
    for kind in PromptClass:
        outcome, client = run(folder, kind, 3, ["Hello."])
        text = client.renderer.tokenizer.decode(list(outcome.exchanges[0].prompt_token_ids or ()))
        heads.add(text.partition("<|im_start|>user")[0])
    assert len(heads) == 1


def test_independent_calls_of_one_message_run_side_by_side(folder: Path) -> None:
    outcome, _ = run(
        folder, PromptClass.PARALLEL, 1, [*needed(tool_prompt(PromptClass.PARALLEL, 1)), "Done."]
    )
    assert outcome.measures["side_by_side"] == 1
    assert (
        outcome.measures["started_early"] == 2
    )  # the stub tells of complete calls as a server's parser does
    assert outcome.measures["together"] is True


def test_words_that_the_token_limit_cut_off_are_no_right_stop(folder: Path) -> None:
    class Cut(Recording):
        def stream(self, request: Request, *, manifest_id: str | None = None) -> ScriptedStream:
            stream = super().stream(request, manifest_id=manifest_id)
            stream.exchange = stream.exchange.model_copy(update={"finish_reason": "length"})
            return stream

    study = ToolCallingStudy("tiny", block_size=16)
    target = served(folder, Cut(ChatRenderer(folder), ["The plural is"]))
    context = TrialContext(study.arms[0], resolve(study.base, study.arms[0]), target, "s", 1)
    outcome = study.run_trial(TrialSpec(task="no-tool", seed=0), context)
    assert (outcome.succeeded, outcome.measures["answers_cut"]) == (False, 1)


def test_a_turn_that_gives_up_says_so_and_failed(folder: Path) -> None:
    again = native("get_time", {"city": "Paris"})
    outcome, _ = run(folder, PromptClass.NO_TOOL, 0, [again] * 9)
    assert not outcome.succeeded
    assert outcome.measures["gave_up"] == "repeated_call"
    assert outcome.measures["wrong_calls"] == 4


def test_reasoning_tokens_are_unknown_for_a_model_that_does_not_reason_and_counted_for_one_that_does(
    folder: Path,
) -> None:
    said = ["<think>\nEasy.\n</think>\n\nhouses"]
    assert run(folder, PromptClass.NO_TOOL, 0, ["houses"])[0].measures["reasoning_tokens"] is None
    outcome, client = run(folder, PromptClass.NO_TOOL, 0, said, reasons=True)
    assert outcome.measures["reasoning_tokens"] == len(client.renderer.tokenizer.encode("Easy.").ids) > 0


def test_other_ids_than_rendered_stop_the_run(folder: Path) -> None:
    with pytest.raises(InequalityError, match="Prompt ids"):
        run(folder, PromptClass.NO_TOOL, 0, ["houses"], alters_ids=True)


@pytest.mark.parametrize("kind", [ErrorKind.CUT, ErrorKind.UNREACHABLE, ErrorKind.CANCELLED])
def test_a_call_that_the_machinery_failed_is_never_scored(kind: ErrorKind, folder: Path) -> None:
    error = ExchangeError(kind=kind, sentence="The connection ended")
    with pytest.raises(InfrastructureError, match="connection ended"):
        run(folder, PromptClass.NO_TOOL, 0, ["houses"], error=error)


def test_a_server_out_of_order_is_the_machinerys_fault_and_a_request_refused_is_a_finding(
    folder: Path,
) -> None:
    broken = ExchangeError(kind=ErrorKind.HTTP_STATUS, sentence="500", status=500)
    with pytest.raises(InfrastructureError):
        run(folder, PromptClass.NO_TOOL, 0, ["houses"], error=broken)
    refused = broken.model_copy(update={"status": 400})
    outcome, _ = run(folder, PromptClass.NO_TOOL, 0, ["houses"], error=refused)
    assert (outcome.succeeded, outcome.measures["success"]) == (False, False)
    assert "500" in str(outcome.measures[REFUSED])


def test_where_no_program_can_be_isolated_its_prompts_are_left_out_and_not_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_module, "interpreter_here", lambda: False)
    outcome, client = run(folder, PromptClass.SINGLE, 5, [])
    assert EXCLUDED in outcome.measures
    assert client.requests == []
    other, client = run(folder, PromptClass.SINGLE, 0, ["Hm."])
    assert EXCLUDED not in other.measures
    assert RUN_PYTHON not in [tool["function"]["name"] for tool in client.requests[0].tools]  # type: ignore[union-attr,index]


def test_every_arm_is_planned_where_it_has_a_meaning() -> None:
    study = ToolCallingStudy("tiny")
    reference = next(size for size in study.sizes if size.name == "reference")
    plan = study.plan(reference)
    assert len(plan) == 40 * len(PromptClass)
    trials = {arm.name: [spec for spec in plan if study.applies(arm, spec)] for arm in study.arms}
    assert len(trials[AUTO]) == 200
    assert len(trials[REQUIRED]) == 160
    assert not any(spec.task == "no-tool" for spec in trials[REQUIRED])
    assert len(trials[NULL_REBUILD]) == NULL_SEEDS * len(PromptClass)


def test_a_model_that_reasons_has_room_to_think() -> None:
    plain, thinking = ToolCallingStudy("qwen2.5-coder-0.5b").base, ToolCallingStudy("qwen3-4b").base
    assert plain["decode.max_tokens"] == 128
    assert thinking["decode.max_tokens"] == 1152


def test_the_cost_study_asks_the_same_prompts_alone_and_predicts_every_call() -> None:
    cost, behaviour = ToolCallingCostStudy("tiny"), ToolCallingStudy("tiny")
    assert (cost.concurrency, cost.predictable) == (1, True)
    assert (cost.base, cost.arms) == (behaviour.base, behaviour.arms)


def record(arm: str, outcome: TrialOutcome) -> TrialRecord:
    return TrialRecord(
        study="tool-calling",
        arm=arm,
        factors={},
        task="no-tool",
        seed=0,
        repeat=0,
        order_index=0,
        attempt=1,
        salt=arm,
        session=0,
        environment="e",
        started="",
        seconds=1.0,
        kind=OutcomeKind.OK,
        outcome="",
        cache=CacheState(temperature=CacheTemperature.UNPROVEN, proof=""),
        measures=outcome.measures,
        exchanges=outcome.exchanges,
    )


def test_a_rebuilt_request_with_other_ids_is_an_inequality_and_another_answer_is_none(folder: Path) -> None:
    study = ToolCallingStudy("tiny")
    one, _ = run(folder, PromptClass.NO_TOOL, 0, ["houses"])
    study.verify([record(AUTO, one), record(NULL_REBUILD, one)])
    other, _ = run(folder, PromptClass.NO_TOOL, 1, ["houses"])
    with pytest.raises(InequalityError, match="rebuilt from a stored copy"):
        study.verify([record(AUTO, one), record(NULL_REBUILD, other)])
    # From a different answer on, the two read different histories, and nothing has to agree.
    said, _ = run(folder, PromptClass.NO_TOOL, 0, [native("get_time", {}), "Ten."])
    study.verify([record(AUTO, one), record(NULL_REBUILD, said)])
