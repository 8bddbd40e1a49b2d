"""A scripted conversation, sent call by call in an arm's way: through a server, or by arithmetic alone.

What the model wrote is known from the script, so the cache of each call holds prompt and answer as in a real run.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from experiments.agent.tokenin import ExtendingRenderer
from experiments.chat_template.proof import Sent
from experiments.chat_template.ways import NOW, Way, WayCaller
from experiments.framework import InfrastructureError
from experiments.framework.served_model import ServedModel
from serving.assembler import (
    AssemblyRequest,
    ContextPolicy,
    HandOff,
    Packet,
    Renderer,
    RequestContext,
    Trajectory,
    assemble,
)
from serving.call import DecodeOptions, MeasuredCall
from serving.chat import ChatRenderer, ChatTokenizer, TemplateRefusesError
from serving.errors import LabError
from serving.prefix import Predictor

Answer = tuple[int, ...]
"""Ids of what a model wrote, its end token last; empty: the template does not print that answer as it was written."""


@dataclass(frozen=True)
class Scripted:
    """A conversation with a way to send it."""

    story: Trajectory
    way: Way
    seed: int
    window: int
    run_id: str = ""

    def request(self, number: int) -> AssemblyRequest:
        """What call `number` asks for, before the way changes it."""
        return self.story.request(
            number,
            context=RequestContext(tenant="lab", actor="study", now=NOW),
            window=self.window,
            max_output=1,
            run_id=self.run_id,
            surface=self.way.surface.value,
        )


@dataclass(frozen=True)
class Replayed:
    """What a replay came to."""

    asked: tuple[MeasuredCall, ...]
    """The model calls, in order."""
    every: tuple[MeasuredCall, ...]
    """Those, and behind each the request that left its answer in the cache."""
    sent: tuple[Sent, ...]
    refusal: str | None
    """The template's words about the next call; None: it took all of them."""


def replay(
    script: Scripted, caller: WayCaller, target: ServedModel, *, salt: str, source: str | None
) -> Replayed:
    """Send the conversation's calls for one token each; raises what `Caller.call` raises, a refusal excepted."""
    answers = written(script, target.folder.path, target.tokenizer, source)
    asked: list[MeasuredCall] = []
    every: list[MeasuredCall] = []
    sent: list[Sent] = []
    for number, answer in enumerate(answers):
        try:
            call = _asked(script, caller, number, salt)
        except TemplateRefusesError as refused:
            return Replayed(tuple(asked), tuple(every), tuple(sent), str(refused))
        asked.append(call)
        every.append(call)
        cached = call.prediction.cached_tokens if call.cached_tokens is None else call.cached_tokens
        sent.append(Sent(call.rendered.token_ids, answer, cached))
        if len(answer) > 1:
            every.append(_worked(caller.caller.remember(call, answer, salt=salt)))
            if caller.extending is not None:
                caller.extending.keep(call.packet, call.rendered, answer)
    return Replayed(tuple(asked), tuple(every), tuple(sent), None)


def foresee(script: Scripted, folder: Path, tokenizer: ChatTokenizer, *, block_size: int) -> tuple[Sent, ...]:
    """The same without a server: what an endless cache of this run alone would reuse, by the exact rule.

    For the model's own template; raises `TemplateRefusesError` where it refuses.
    """
    own = ChatRenderer(folder, template_kwargs=script.way.template_kwargs, tokenizer=tokenizer)
    extending = ExtendingRenderer(own) if script.way.keeps_ids else None
    renderer: Renderer = own if extending is None else extending
    predictor = Predictor(block_size)
    sent: list[Sent] = []
    for number, answer in enumerate(written(script, folder, tokenizer, None)):
        request = script.way.changed(script.request(number))
        packet = _packet(
            assemble(request, ContextPolicy(), renderer, script.way.sabotage(number, script.seed))
        )
        rendered = renderer.render(packet.messages, packet.tools)
        cached = predictor.predict_next(rendered.token_ids).cached_tokens
        predictor.record(answer)
        sent.append(Sent(rendered.token_ids, answer, cached))
        if extending is not None and len(answer) > 1:
            extending.keep(packet, rendered, answer)
    return tuple(sent)


def written(
    script: Scripted, folder: Path, tokenizer: ChatTokenizer, source: str | None
) -> tuple[Answer, ...]:
    """What the model wrote in each call: what the template prints for the answer while that is the last message.

    Without any fault, for a model writes its answer before anybody sends it back. The last call is still to come.
    """
    openings, closed = (
        ChatRenderer(
            folder,
            template_kwargs=script.way.template_kwargs,
            template_override=source,
            tokenizer=tokenizer,
            add_generation_prompt=open_,
        )
        for open_ in (True, False)
    )
    calls = range(script.story.calls)
    packets = [_plain(script, number, openings) for number in calls]
    return (*(_answer(*both, openings, closed) for both in pairwise(packets)), ())


def _answer(
    before: Packet | None, after: Packet | None, openings: ChatRenderer, closed: ChatRenderer
) -> Answer:
    if before is None or after is None:
        return ()
    try:
        prompt = openings.render_text(before.messages, before.tools)
        whole = closed.render_text(after.messages[: len(before.messages) + 1], after.tools)
    except TemplateRefusesError:
        return ()
    if not whole.startswith(prompt):
        return ()
    # The line break behind the end token is the template's, not the model's.
    return closed.tokenizer.encode(whole[len(prompt) :].rstrip()).ids


def _plain(script: Scripted, number: int, renderer: ChatRenderer) -> Packet | None:
    try:
        return _packet(assemble(script.request(number), ContextPolicy(), renderer))
    except TemplateRefusesError:
        return None


def _asked(script: Scripted, caller: WayCaller, number: int, salt: str) -> MeasuredCall:
    started = caller.start(script.request(number), ContextPolicy(), DecodeOptions(max_tokens=1), salt=salt)
    if isinstance(started, HandOff):
        raise _too_long(started)
    finished = started.finish()
    if not isinstance(finished, MeasuredCall):
        raise LabError("Expected a measured call of a replay, and its caller does not know the template.")
    return _worked(finished)


def _worked(call: MeasuredCall) -> MeasuredCall:
    if call.exchange.error is not None:
        raise InfrastructureError(call.exchange.error.sentence)
    return call


def _packet(packet: Packet | HandOff) -> Packet:
    if isinstance(packet, HandOff):
        raise _too_long(packet)
    return packet


def _too_long(hand_off: HandOff) -> LabError:
    return LabError(
        f"A call needs {hand_off.needed} tokens of {hand_off.budget}: serve a longer context, or ask less."
    )
