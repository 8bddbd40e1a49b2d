"""The study `chat-template-replay`: one scripted conversation under every way of sending it, in exact tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property

from experiments.chat_template.arms import DECLARED, base_factors, is_family, replay_arms
from experiments.chat_template.conversation import conversation
from experiments.chat_template.names import LOST, TOOL_ROLE
from experiments.chat_template.proof import prove_run
from experiments.chat_template.replay_analysis import analyse_replay
from experiments.chat_template.replaying import Replayed, Scripted, replay
from experiments.chat_template.ways import Way, WayCaller
from experiments.framework import (
    Analysis,
    Arm,
    Size,
    Study,
    TrialContext,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
)
from experiments.framework.arms import NULL_REBUILD
from experiments.framework.measured import call_record, check_replayed
from experiments.framework.served_model import ServedModel, check_pool
from experiments.framework.trials import Measure, total
from experiments.tool_calling.names import REFUSED
from serving.errors import LabError
from serving.models.template_collection import TemplateCollection, trl_templates


class ChatTemplateReplayStudy(Study[ServedModel]):
    """Sends every call of a scripted conversation for one token, and compares reuse with its prediction."""

    name = "chat-template-replay"
    title = "What a way of sending costs the prefix cache"
    question = (
        "A chain of calls, parallel calls and a last question, with the same words in every arm: how much of what the "
        "server has computed does the next request still begin with?"
    )
    declared = DECLARED
    null_arm = NULL_REBUILD
    sizes = (
        Size(name="quick", tasks=1, seeds=1),
        Size(name="reference", tasks=1, seeds=3),
        Size(name="full", tasks=1, seeds=12),
    )

    def __init__(self, model: str, *, block_size: int = 32) -> None:
        """Args: `model` a catalogue name, hub id or folder, whose weights may be made up; `block_size` in tokens."""
        self.base = base_factors(model, block_size=block_size, max_tokens=1, window=8192)
        self.arms = replay_arms(model)

    def applies(self, arm: Arm, spec: TrialSpec) -> bool:
        """Token counts of a template are exact, and one conversation shows a family's habits."""
        return not is_family(arm) or spec.seed == 0

    def run_trial(self, spec: TrialSpec, context: TrialContext[ServedModel]) -> TrialOutcome:
        """Replay one conversation; `InequalityError` where ids or reuse are not as rendered and predicted."""
        target, way = context.target, Way.of(context.factors)
        source = None if way.template is None else self._source(way.template)
        script = Scripted(
            conversation(spec.seed, thinking=way.thinking is True),
            way,
            spec.seed,
            target.max_model_len,
            context.salt,
        )
        caller = WayCaller.of(way, target, seed=spec.seed, source=source)
        done = replay(script, caller, target, salt=context.salt, source=source)
        check_pool(done.every, target)
        refused = {} if done.refusal is None else {REFUSED: done.refusal}
        return TrialOutcome(
            exchanges=tuple(call.exchange for call in done.every),
            calls=tuple(call_record(call) for call in done.every),
            manifests=tuple(call.packet.manifest for call in done.asked),
            measures={**_measures(done, script.story.calls, target.block_size), **refused},
            succeeded=done.refusal is None,
            outcome=done.refusal or f"{len(done.asked)} calls replayed",
        )

    def verify(self, records: Iterable[TrialRecord]) -> None:
        """The null arm reads the ids and reuses the tokens of the first arm, call by call."""
        check_replayed(records, base=TOOL_ROLE, null=NULL_REBUILD)

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Tokens by arm and cause, and what broke first; every sentence is computed."""
        return analyse_replay(self.arms, records)

    def _source(self, name: str) -> str:
        if name not in self._collection.sources:
            raise LabError(f"Expected a template {name!r} in {self._collection.origin}, and there is none.")
        return self._collection.sources[name]

    @cached_property
    def _collection(self) -> TemplateCollection:
        return trl_templates()


def _measures(done: Replayed, planned: int, block_size: int) -> dict[str, Measure]:
    proof = prove_run(done.sent, block_size)
    causes = Counter[str]()
    lost = Counter[str]()
    for call in done.asked:
        causes.update({cause.value: tokens for cause, tokens in call.prediction.causes.items()})
        if call.miss is not None:
            lost.update({c.value: tokens for c, tokens in call.miss.tokens.items() if c.avoidable})
    broken = next((call.first_break for call in done.asked if call.first_break is not None), None)
    return {
        "planned_calls": planned,
        "model_calls": proof.calls,
        "answers_known": sum(len(sent.output) > 1 for sent in done.sent),
        "later_calls": max(proof.calls - 1, 0),
        "kept_all": proof.kept_all,
        "kept_prompt": proof.kept_prompt,
        "prompt_tokens": proof.prompt_tokens,
        "cached_tokens": proof.cached_tokens,
        "uncached_tokens": proof.prompt_tokens - proof.cached_tokens,
        "twin_tokens": proof.twin_tokens,
        "lost_tokens": proof.lost_tokens,
        "ttft_s": total(call.exchange.ttft_s for call in done.asked),
        **{f"cause_{cause}": tokens for cause, tokens in causes.items()},
        **{f"{LOST}{cause}": tokens for cause, tokens in lost.items()},
        "first_break": None if broken is None else broken.words(),
        "stored_there": None if broken is None else broken.stored_text,
        "sent_instead": None if broken is None else broken.sent_text,
    }
