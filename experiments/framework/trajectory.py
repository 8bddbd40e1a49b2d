"""A run of several calls as one self-contained page: each step's packet, manifest, ids and times can be opened.

What a step repeats of the one before is said and not shown again: an append-only run reads as what was added.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise

from pydantic import BaseModel, ConfigDict, JsonValue

from experiments.framework.analysis import Table
from experiments.framework.pages import page_environment
from experiments.framework.report import Fact
from serving.assembler import FRAMING, ContextManifest, TokenSpan
from serving.chat import ShownToken
from serving.client import Exchange
from serving.text import common_prefix

Show = Callable[[Sequence[int]], Sequence[ShownToken]]
"""Tokens with their texts: `ChatTokenizer.show`."""


class TrajectoryStep(BaseModel):
    """One model call as a page shows it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    messages: tuple[dict[str, JsonValue], ...]
    """As in the request's body."""
    tools: tuple[dict[str, JsonValue], ...]
    manifest: ContextManifest | None
    prompt_ids: tuple[int, ...] | None
    spans: tuple[TokenSpan, ...] = ()
    """The items that the prompt's tokens came from, in order and without gaps; empty: not known."""
    exchange: Exchange
    facts: tuple[Fact, ...] = ()
    """What whoever made the call knows beside it."""
    ran: Table | None = None
    """The tools that the answer led to."""


class TrajectoryPage(BaseModel):
    """Everything that the page shows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    up: str | None = None
    """The page that lists this one, from here."""
    ending: str
    """How it ended, or the answer."""
    facts: tuple[Fact, ...]
    steps: tuple[TrajectoryStep, ...]


class MessageView(BaseModel):
    """One message, its parts by name: content, reasoning, one for each call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    parts: tuple[tuple[str, str], ...]


class RunView(BaseModel):
    """Neighbouring tokens of one item."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    item: str
    tokens: tuple[ShownToken, ...]


class StepView(BaseModel):
    """A step beside the one before it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    facts: tuple[Fact, ...]
    timing: tuple[Fact, ...]
    same_messages: int
    messages: tuple[MessageView, ...]
    same_tools: bool
    tools: tuple[MessageView, ...]
    items: Table | None
    manifest: str | None
    rest: str
    """Of the request's body: all that is neither packet nor prompt."""
    prompt_tokens: int | None
    same_tokens: int
    """First tokens of the prompt that the step before had sent or got as its answer."""
    prompt: tuple[RunView, ...]
    output: tuple[ShownToken, ...] | None
    ran: Table | None


def render_trajectory(page: TrajectoryPage, show: Show | None) -> str:
    """Render the page; the same values give the same text. `show` None: ids without their texts."""
    before = (None, *page.steps)
    views = [_view(last, step, show or _bare) for last, step in zip(before, page.steps, strict=False)]
    template = page_environment().get_template("trajectory.html.jinja")
    return template.render(
        page=page, steps=views, same_head=_same_head(page.steps), with_texts=show is not None
    )


def _bare(ids: Sequence[int]) -> Sequence[ShownToken]:
    return [ShownToken(token, "", special=False) for token in ids]


def _same_head(steps: Sequence[TrajectoryStep]) -> int:
    """Steps whose prompt begins with all of the prompt before it."""
    return sum(
        old.prompt_ids is not None
        and new.prompt_ids is not None
        and new.prompt_ids[: len(old.prompt_ids)] == old.prompt_ids
        for old, new in pairwise(steps)
    )


def _view(last: TrajectoryStep | None, step: TrajectoryStep, show: Show) -> StepView:
    exchange = step.exchange
    same = 0 if last is None else common_prefix(last.messages, step.messages)
    known = () if last is None else (*(last.prompt_ids or ()), *(last.exchange.output_token_ids or ()))
    same_tokens = common_prefix(known, step.prompt_ids or ())
    same_tools = last is not None and last.tools == step.tools
    return StepView(
        facts=(*_cost(exchange), *step.facts),
        timing=_timing(exchange),
        same_messages=same,
        messages=tuple(
            _message(number, message) for number, message in enumerate(step.messages[same:], same + 1)
        ),
        same_tools=same_tools,
        tools=() if same_tools else tuple(_tool(tool) for tool in step.tools),
        items=None if step.manifest is None else _items(step.manifest),
        manifest=None if step.manifest is None else step.manifest.model_dump_json(indent=1),
        rest=_json(
            {
                name: value
                for name, value in exchange.request.items()
                if name not in ("messages", "tools", "prompt")
            }
        ),
        prompt_tokens=None if step.prompt_ids is None else len(step.prompt_ids),
        same_tokens=same_tokens,
        prompt=_runs(step, same_tokens, show),
        output=None if exchange.output_token_ids is None else tuple(show(exchange.output_token_ids)),
        ran=step.ran,
    )


def _message(number: int, message: dict[str, JsonValue]) -> MessageView:
    parts = [(name, str(message[name])) for name in ("reasoning", "content") if message.get(name)]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(call, dict) and isinstance(function, dict):
            parts.append((f"call {call.get('id')}: {function.get('name')}", str(function.get("arguments"))))
    answered = message.get("tool_call_id")
    return MessageView(
        title=f"{number}. {message.get('role')}{'' if answered is None else f' {answered}'}",
        parts=tuple(parts),
    )


def _tool(tool: dict[str, JsonValue]) -> MessageView:
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else "?"
    return MessageView(title=str(name), parts=(("contract", _json(tool)),))


def _runs(step: TrajectoryStep, same: int, show: Show) -> tuple[RunView, ...]:
    ids = step.prompt_ids or ()
    spans = step.spans or (TokenSpan(0, len(ids), ""),)
    return tuple(
        RunView(item=span.item_id, tokens=tuple(show(ids[max(span.start, same) : span.end])))
        for span in spans
        if span.end > max(span.start, same)
    )


def _cost(exchange: Exchange) -> tuple[Fact, ...]:
    usage = exchange.usage
    prompt = None if usage is None else usage.prompt_tokens
    cached = None if usage is None else usage.cached_tokens
    return (
        Fact(name="prompt tokens", value=prompt),
        Fact(name="cached tokens", value=cached),
        Fact(name="new tokens", value=None if prompt is None or cached is None else prompt - cached),
        Fact(name="output tokens", value=exchange.output_tokens),
        Fact(name="ended with", value=exchange.finish_reason),
        *(() if exchange.error is None else (Fact(name="error", value=exchange.error.sentence),)),
    )


def _timing(exchange: Exchange) -> tuple[Fact, ...]:
    times = exchange.timings
    gaps = exchange.itl_s
    return (
        Fact(name="sent", value=times.started_at.isoformat()),
        Fact(name="first byte, ms", value=_ms(times.first_byte_ns)),
        Fact(name="first token (TTFT), ms", value=_ms(times.first_token_ns)),
        Fact(name="last token (latency), ms", value=_ms(times.last_token_ns)),
        Fact(name="end of the answer, ms", value=_ms(times.done_ns)),
        Fact(name="TPOT, ms", value=None if exchange.tpot_s is None else exchange.tpot_s * 1e3),
        Fact(name="longest gap between arrivals (ITL), ms", value=max(gaps) * 1e3 if gaps else None),
    )


def _ms(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6


def _items(manifest: ContextManifest) -> Table:
    kept = [(item.id, item.kind.value, item.layer.value, item.tokens, "") for item in manifest.selected]
    left = [
        (item.id, item.kind.value, item.layer.value, item.tokens, item.reason.value)
        for item in manifest.dropped
    ]
    budget = manifest.budget
    return Table(
        title="Items",
        columns=("item", "kind", "layer", "tokens", "dropped because"),
        rows=(*kept, *left),
        note=f"{FRAMING}: {budget.framing:,} tokens; all: {budget.used:,} of {budget.budget:,}.",
    )


def _json(value: JsonValue) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)
