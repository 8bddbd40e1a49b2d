"""One template, surveyed: every probe, every spelling, every habit; no model, and ids where there is a tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from serving.chat.probe import TemplateFacts, probe_template
from serving.chat.survey.conversations import (
    SWITCHES_OFF,
    SYSTEM_TEXT,
    USES_THINKING,
    USES_TOOLS,
    Habits,
    Probe,
    Spelling,
    steps,
    user,
)
from serving.chat.survey.findings import Finding, find_habits
from serving.chat.survey.proof import Encode, Kept, Proof, TurnRenderer, prove
from serving.chat.tokenizer import ChatTokenizer, load_template
from serving.errors import UsageError

NAMED_TOKENS: Mapping[str, str] = {"bos_token": "<s>", "eos_token": "</s>"}
"""Given to a template that comes without a tokenizer: many cannot be rendered without."""

CONVENTIONS = (
    "Tool arguments are given as an object and the content beside a call as an empty string; the other "
    "spellings (JSON text, null) are tried too and named where they change a result.",
    "`bos_token` and `eos_token` are given.",
    "Content is given as a string, or as text parts where the template loops over parts (vLLM's rule).",
    "The output of turn n is what the template writes for the answer while that is the last message, without "
    "its last token, which an engine samples and never stores.",
    "Reasoning is sent in the field that the template reads, else before the text in `<think>` tags, with "
    "`enable_thinking` on where the template knows it.",
)


class Unit(StrEnum):
    """What lengths are counted in."""

    TOKENS = "tokens"
    CHARACTERS = "characters"
    """Without a tokenizer. Where a text begins another and ends at an added token, so do its ids."""


class NotAsked(StrEnum):
    """Why a probe says nothing about a template."""

    NO_TOOLS = "the template leaves out tools and calls without a word"
    NO_SWITCH = "the template has no enable_thinking"
    NO_REASONING = "the template knows no reasoning"


class Probed(BaseModel):
    """The result of one probe: the worst of its steps, and each step's proof."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kept: Kept | None
    """None: not asked."""
    not_asked: NotAsked | None = None
    proofs: tuple[Proof, ...] = ()


class Deviation(BaseModel):
    """Probes that end otherwise when the client spells the same conversations otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spelling: Spelling
    kept: Kept
    probes: tuple[Probe, ...]
    refusal: str | None
    """The template's words in the first of these probes, where it refuses."""


class TemplateSurvey(BaseModel):
    """All that was found about one template."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    sha256: str
    unit: Unit
    renders_tool_loop: bool
    """A conversation with a tool call and its result is not refused."""
    thinking_switch: bool
    reasoning_fields: tuple[str, ...]
    probes: Mapping[Probe, Probed]
    findings: tuple[Finding, ...]
    deviations: tuple[Deviation, ...]


def survey_template(
    name: str,
    source: str,
    *,
    named_tokens: Mapping[str, str] = NAMED_TOKENS,
    encode: Encode | None = None,
) -> TemplateSurvey:
    """Probe a template with every scripted conversation.

    With `encode`, the template's own tokenizer, the proofs are over ids; without it over text. Raises:
    UsageError when the template does not compile.
    """
    renderer = TurnRenderer.of(source, named_tokens)
    facts = probe_template(source)
    habits = _habits(renderer, facts, source)
    asked = {probe: _why_not(probe, facts, source) for probe in Probe}
    proofs = {
        probe: [prove(renderer, step, _switches(probe, facts), encode) for step in steps(probe, habits)]
        for probe, why_not in asked.items()
        if why_not is None
    }
    probes = {
        probe: Probed(
            kept=_worst(proofs[probe]) if probe in proofs else None,
            not_asked=why_not,
            proofs=tuple(proofs.get(probe, ())),
        )
        for probe, why_not in asked.items()
    }
    return TemplateSurvey(
        name=name,
        sha256=hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest(),
        unit=Unit.CHARACTERS if encode is None else Unit.TOKENS,
        renders_tool_loop=facts.renders_tool_calls is not None and facts.renders_tool_results is not None,
        thinking_switch=facts.thinking_switch,
        reasoning_fields=tuple(facts.reasoning_fields),
        probes=probes,
        findings=find_habits(renderer, facts, habits, proofs, _switches(Probe.ECHOED, facts)),
        deviations=_deviations(renderer, facts, habits, probes, encode),
    )


def survey_folder(name: str, folder: Path, *, with_tools: bool = True) -> TemplateSurvey:
    """Probe the template of a model folder, over the ids of its own tokenizer.

    `with_tools` chooses among several named templates. Raises: UsageError for a folder without tokenizer or
    template.
    """
    tokenizer = ChatTokenizer(folder)
    source = load_template(folder, tokenizer.config, with_tools=with_tools)
    named = {**NAMED_TOKENS, **tokenizer.named_tokens()}
    return survey_template(name, source, named_tokens=named, encode=lambda text: tokenizer.encode(text).ids)


def _habits(renderer: TurnRenderer, facts: TemplateFacts, source: str) -> Habits:
    try:
        renderer.text([{"role": "system", "content": SYSTEM_TEXT}, user(1)])
        takes_system = True
    except UsageError:
        takes_system = False
    field = facts.reasoning_fields[0].value if facts.reasoning_fields else None
    if field is None and "</think>" not in source and facts.thinking_switch:
        field = "reasoning"  # what vLLM calls it; this template thinks, and shows it nowhere
    return Habits(field, takes_system)


def _why_not(probe: Probe, facts: TemplateFacts, source: str) -> NotAsked | None:
    if probe in USES_TOOLS and not facts.renders_tools and facts.renders_tool_calls is False:
        return NotAsked.NO_TOOLS
    if probe is Probe.TOOL_ADDED and not facts.renders_tools:
        return NotAsked.NO_TOOLS
    if probe in SWITCHES_OFF and not facts.thinking_switch:
        return NotAsked.NO_SWITCH
    reasons = facts.reasoning_fields or facts.thinking_switch or "</think>" in source
    return NotAsked.NO_REASONING if probe in USES_THINKING and not reasons else None


def _switches(probe: Probe, facts: TemplateFacts) -> dict[str, bool]:
    if probe in SWITCHES_OFF:
        return {"enable_thinking": False}
    return {"enable_thinking": True} if probe in USES_THINKING and facts.thinking_switch else {}


def _worst(proofs: list[Proof]) -> Kept:
    order = list(Kept)
    return max((proof.kept for proof in proofs), key=order.index)


def _deviations(
    renderer: TurnRenderer,
    facts: TemplateFacts,
    habits: Habits,
    probes: Mapping[Probe, Probed],
    encode: Encode | None,
) -> tuple[Deviation, ...]:
    """Both spellings together are named only where they do what neither does alone."""
    found: dict[tuple[Spelling, Kept], Deviation] = {}
    alone: set[tuple[Probe, Kept]] = set()
    for spelling in (Spelling.ARGUMENTS_AS_TEXT, Spelling.NULL_CONTENT, Spelling.BOTH):
        for probe in Probe:
            usual = probes[probe].kept
            if probe not in USES_TOOLS or usual is None:
                continue
            switches = _switches(probe, facts)
            proofs = [prove(renderer, step, switches, encode) for step in steps(probe, habits, spelling)]
            kept = _worst(proofs)
            if kept is usual or (spelling is Spelling.BOTH and (probe, kept) in alone):
                continue
            alone.add((probe, kept))
            known = found.get((spelling, kept))
            refusal = next((proof.refusal for proof in proofs if proof.refusal), None)
            found[spelling, kept] = Deviation(
                spelling=spelling,
                kept=kept,
                probes=(*(known.probes if known else ()), probe),
                refusal=known.refusal if known else refusal,
            )
    return tuple(found.values())
