"""Whole trials against a stub: a real template, a real loop and real tools, and a model that follows a script."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from experiments.chat_template import ChatTemplateCostStudy, ChatTemplateStudy
from experiments.chat_template.names import (
    IDS_KEPT,
    LATE_SYSTEM,
    REMINDER_HEAD,
    SWAPPED,
    TEXT,
    THINKING_OFF,
    TOOL_ROLE,
    USER_ROLE,
)
from experiments.chat_template.study import NULL_SEEDS
from experiments.faults.late_system_message import REMINDER
from experiments.framework import TrialContext, TrialOutcome, TrialSpec
from experiments.framework.arms import NULL_REBUILD, resolve
from experiments.framework.served_model import ServedModel
from experiments.framework.study import check_study, size_named
from experiments.tool_calling.names import REFUSED
from experiments.workloads.tool_prompts import PromptClass, tool_prompt
from serving.client import ErrorKind, ExchangeError, Request
from serving.models import ModelFolder
from tests.support.caching_client import CachingClient
from tests.support.made_record import made_record
from tests.support.scripted_client import ScriptedStream
from tests.support.tiny_model import write_tiny_folder

BLOCK = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("model"), "qwen2_5")


def said(kind: PromptClass, seed: int, form: str = "<tool_call>\n{}\n</tool_call>") -> list[str]:
    """What a model says that makes every needed call, in messages of one call where it has to wait, and answers."""
    prompt = tool_prompt(kind, seed)
    calls = [
        form.format(json.dumps({"name": call.name, "arguments": call.arguments})) for call in prompt.calls
    ]
    return [*(calls if prompt.ordered else ["\n".join(calls)]), "That is all."]


def run(
    folder: Path,
    kind: PromptClass,
    arm: str,
    *,
    study: ChatTemplateStudy | None = None,
    client: CachingClient | None = None,
    form: str = "<tool_call>\n{}\n</tool_call>",
) -> tuple[TrialOutcome, CachingClient]:
    study = study or ChatTemplateStudy("qwen2.5-coder-0.5b", block_size=BLOCK)
    client = client or CachingClient(folder, BLOCK)
    client.replies = said(kind, 0, form)
    model = ModelFolder.model_construct(name="tiny", path=folder, reasoning_parser=None, tool_parser="hermes")
    target = ServedModel(client, model, BLOCK, 10_000, 9_000)  # type: ignore[arg-type]
    chosen = next(one for one in study.arms if one.name == arm)
    context = TrialContext(chosen, resolve(study.base, chosen), target, f"salt-{arm}", 1)
    return study.run_trial(TrialSpec(task=kind.value, seed=0), context), client


def text_of(client: CachingClient, outcome: TrialOutcome, call: int) -> str:
    return client.renderer.tokenizer.decode(outcome.exchanges[call].prompt_token_ids or ())


@pytest.mark.parametrize("arm", [TOOL_ROLE, USER_ROLE, TEXT, LATE_SYSTEM, REMINDER_HEAD, IDS_KEPT])
def test_a_model_that_does_right_is_right_under_every_arm(arm: str, folder: Path) -> None:
    outcome, client = run(folder, PromptClass.CHAINED, arm)
    assert outcome.succeeded
    assert outcome.measures["model_calls"] == outcome.measures["ids_equal"] == len(client.requests) == 3
    assert outcome.measures["later_calls"] == 2
    assert len(outcome.calls) == len(outcome.manifests) == 3
    assert all(call.predicted_tokens is None for call in outcome.calls)  # trials share a salt here


def test_carriers_change_what_the_model_reads_and_nothing_else(folder: Path) -> None:
    texts = {}
    for arm in (TOOL_ROLE, USER_ROLE, TEXT, LATE_SYSTEM, REMINDER_HEAD):
        outcome, client = run(folder, PromptClass.CHAINED, arm)
        texts[arm] = text_of(client, outcome, 1)
    assert "<tool_response>" in texts[TOOL_ROLE]
    assert "<tool_response>" not in texts[USER_ROLE]
    assert texts[USER_ROLE].count("<|im_start|>user") == 2
    assert "Transcript so far:" in texts[TEXT] and texts[TEXT].count("<|im_start|>user") == 1
    assert texts[LATE_SYSTEM].endswith(f"<|im_start|>system\n{REMINDER}<|im_end|>\n<|im_start|>assistant\n")
    assert REMINDER in texts[REMINDER_HEAD].partition("<|im_start|>user")[0]
    assert REMINDER not in texts[TOOL_ROLE]


def test_results_are_swapped_in_what_is_sent_back(folder: Path) -> None:
    plain, client = run(folder, PromptClass.PARALLEL, TOOL_ROLE)
    swapped, _ = run(folder, PromptClass.PARALLEL, SWAPPED)
    one, other = text_of(client, plain, 1), text_of(client, swapped, 1)
    assert one != other
    assert sorted(one) == sorted(other)


def test_the_loss_of_a_way_is_that_of_the_right_turn_whatever_the_model_said(folder: Path) -> None:
    text, _ = run(folder, PromptClass.CHAINED, TEXT)
    plain, _ = run(folder, PromptClass.CHAINED, TOOL_ROLE)
    assert plain.measures["fixed_lost_tokens"] == plain.measures["lost_tokens"] == 0
    assert isinstance(text.measures["fixed_lost_tokens"], int) and text.measures["fixed_lost_tokens"] > 0
    early, _ = run(folder, PromptClass.CHAINED, TEXT, form="I would rather not.")
    assert (early.measures["model_calls"], early.measures["lost_tokens"]) == (1, 0)
    assert early.measures["fixed_lost_tokens"] == text.measures["fixed_lost_tokens"]


def test_fenced_calls_come_back_in_another_form_and_kept_ids_do_not(folder: Path) -> None:
    fenced = "```json\n{}\n```"
    plain, _ = run(folder, PromptClass.CHAINED, TOOL_ROLE, form=fenced)
    kept, client = run(folder, PromptClass.CHAINED, IDS_KEPT, form=fenced)
    assert plain.succeeded and kept.succeeded
    assert (plain.measures["kept_all"], plain.measures["later_calls"]) == (0, 2)
    assert sum(value for name, value in plain.measures.items() if name.startswith("drift_")) == 2  # type: ignore[misc]
    assert (kept.measures["kept_all"], kept.measures["lost_tokens"]) == (2, 0)
    assert not any(name.startswith("drift_") for name in kept.measures)
    assert "```json" in text_of(client, kept, 1)


def test_the_null_arm_sends_the_same_ids(folder: Path) -> None:
    one, _ = run(folder, PromptClass.PARALLEL, TOOL_ROLE)
    other, _ = run(folder, PromptClass.PARALLEL, NULL_REBUILD)
    assert [e.prompt_token_ids for e in one.exchanges] == [e.prompt_token_ids for e in other.exchanges]
    records = [
        made_record("chat-template", arm, "parallel", 0, made.measures).model_copy(
            update={"exchanges": made.exchanges}
        )
        for arm, made in ((TOOL_ROLE, one), (NULL_REBUILD, other))
    ]
    ChatTemplateStudy("qwen2.5-coder-0.5b").verify(records)


@pytest.mark.parametrize("arm", [TOOL_ROLE, TEXT, IDS_KEPT])
def test_the_cost_study_predicts_every_call_of_a_real_turn(arm: str, folder: Path) -> None:
    study = ChatTemplateCostStudy("qwen2.5-coder-0.5b", block_size=BLOCK)
    outcome, _ = run(folder, PromptClass.CHAINED, arm, study=study)
    assert [call.cached_tokens for call in outcome.calls] == [call.predicted_tokens for call in outcome.calls]
    assert outcome.calls[0].cached_tokens == 0
    assert outcome.measures["alone_cached_tokens"] == sum(call.cached_tokens or 0 for call in outcome.calls)
    assert outcome.measures["first_ttft_s"] is not None


def test_a_request_that_the_server_would_not_take_is_a_finding(folder: Path) -> None:
    @dataclass
    class Refusing(CachingClient):
        def stream(self, request: Request, *, manifest_id: str | None = None) -> ScriptedStream:
            stream = super().stream(request, manifest_id=manifest_id)
            error = ExchangeError(kind=ErrorKind.HTTP_STATUS, sentence="no such role", status=400)
            stream.exchange = stream.exchange.model_copy(update={"error": error})
            return stream

    outcome, _ = run(folder, PromptClass.SINGLE, LATE_SYSTEM, client=Refusing(folder, BLOCK))
    assert (outcome.succeeded, outcome.measures["success"]) == (False, False)
    assert outcome.measures[REFUSED] == "no such role"


@pytest.mark.parametrize("model", ["qwen3-4b", "qwen2.5-coder-0.5b"])
def test_every_arm_is_planned_where_it_has_a_meaning(model: str) -> None:
    study = ChatTemplateStudy(model)
    check_study(study, study.arms)
    plan = study.plan(size_named(study.sizes, "reference"))
    trials = {arm.name: sum(study.applies(arm, spec) for spec in plan) for arm in study.arms}
    assert trials[TOOL_ROLE] == trials[USER_ROLE] == 60
    assert trials[SWAPPED] == 20
    assert trials[NULL_REBUILD] == 3 * NULL_SEEDS
    assert (THINKING_OFF in trials) is (model == "qwen3-4b")
    if model != "qwen3-4b":
        assert sum(trials.values()) <= 400  # an hour of two cores
    assert study.base["render.thinking"] is (True if model == "qwen3-4b" else None)
