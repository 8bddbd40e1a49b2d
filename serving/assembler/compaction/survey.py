"""What of a log may be covered at all, and why the rest stays; the same for every strategy.

Only the words of a model, of a tool and, where the policy allows it, of the user become a summary. What is
trusted would lose its authority in one, so it stays. An open pair keeps its place and hinders nothing else.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from serving.assembler.compaction.policy import CompactionPolicy, Reach, Strategy
from serving.assembler.compaction.records import CountTokens, Source, Spared, SpareReason
from serving.assembler.items import ContextItem
from serving.assembler.kinds import Kind, Trust
from serving.assembler.messages import part_id
from serving.assembler.payloads import AssistantTurn, StatusBar, Summary, ToolStep, UserTurn

_MODEL_TURNS: Final = frozenset({Kind.ASSISTANT_TURN, Kind.TOOL_STEP})
_COVERABLE: Final = frozenset({*_MODEL_TURNS, Kind.USER_TURN})


@dataclass(frozen=True, slots=True)
class Eligible:
    """An item that may be covered, what a summariser reads of it, and its size."""

    item: ContextItem
    sources: tuple[Source, ...]
    """Empty for a stale status bar: each is a full state, so only the newest says anything."""
    tokens: int

    @property
    def earlier(self) -> Summary | None:
        """The checkpoint that this item is, if it is one."""
        return self.item.payload if isinstance(self.item.payload, Summary) else None


@dataclass(frozen=True, slots=True)
class Survey:
    """Both in log order."""

    eligible: tuple[Eligible, ...]
    spared: tuple[Spared, ...]


def survey(
    history: Sequence[ContextItem],
    policy: CompactionPolicy,
    count: CountTokens,
    rendered: Mapping[str, int],
) -> Survey:
    """Sort the items of `history`, in which earlier summaries stand already."""
    bounds = _Bounds.of(history, policy)
    eligible: list[Eligible] = []
    spared: list[Spared] = []
    for index, item in enumerate(history):
        reason = _spare_reason(index, item, policy, bounds)
        if reason is not None:
            spared.append(Spared(id=item.id, reason=reason))
            continue
        sources = sources_of(item)
        written = count(_written(item, sources))
        # The smaller of both: a masked result is sent in fewer tokens than it holds.
        eligible.append(Eligible(item, sources, min(written, rendered.get(item.id, written))))
    return Survey(tuple(eligible), tuple(spared))


def sources_of(item: ContextItem) -> tuple[Source, ...]:
    """What of an item is worth reading: its own words, and every result under its part id.

    Texts are taken as they are. Nothing is parsed: arguments, results and reasoning are opaque here.
    """
    match item.payload:
        case UserTurn(text=text):
            parts = [(item.id, f"user: {text}" if text else "")]
        case AssistantTurn(text=text, reasoning=reasoning):
            parts = [(item.id, _lines(("reasoning", reasoning or ""), ("assistant", text)))]
        case ToolStep() as step:
            results = {result.call_id: result for result in step.results}
            calls = [(f"call {call.name}", call.arguments) for call in step.calls]
            parts = [(item.id, _lines(("reasoning", step.reasoning or ""), ("assistant", step.text), *calls))]
            for call in step.calls:
                if (result := results.get(call.id)) is not None:
                    failed = " (failed)" if result.failed else ""
                    kept = "" if result.artifact_ref is None else f" (kept as {result.artifact_ref})"
                    text = f"result of {call.name}{failed}{kept}:\n{result.content}"
                    parts.append((part_id(item.id, call.id), text))
        case _:
            parts = []
    return tuple(Source(id=source_id, text=text) for source_id, text in parts if text)


def framed(item_id: str, summary: Summary) -> str:
    """A text as long as the one in which the layout shows `summary`: what shrinking is measured on."""
    named = {"id": item_id, **summary.attributes, "trust": "untrusted"}
    written = "".join(f' {key}="{html.escape(" ".join(value.split()))}"' for key, value in named.items())
    return f"<summary:00000000{written}>\n{summary.text}\n</summary:00000000>"


def _written(item: ContextItem, sources: Sequence[Source]) -> str:
    match item.payload:
        case Summary() as summary:
            return framed(item.id, summary)
        case StatusBar(text=text):
            return text
        case _:
            return "\n".join(source.text for source in sources)


@dataclass(frozen=True, slots=True)
class _Bounds:
    last_user: int
    recent_from: int
    newest_bar: int

    @classmethod
    def of(cls, history: Sequence[ContextItem], policy: CompactionPolicy) -> _Bounds:
        model_turns = [index for index, item in enumerate(history) if item.kind in _MODEL_TURNS]
        return cls(
            last_user=_last(history, Kind.USER_TURN, len(history)),
            recent_from=model_turns[-policy.keep_last :][0] if model_turns else 0,
            newest_bar=_last(history, Kind.STATUS_BAR, -1),
        )


def _last(history: Sequence[ContextItem], kind: Kind, otherwise: int) -> int:
    return max((index for index, item in enumerate(history) if item.kind is kind), default=otherwise)


def _spare_reason(
    index: int, item: ContextItem, policy: CompactionPolicy, bounds: _Bounds
) -> SpareReason | None:
    if isinstance(item.payload, Summary):
        extends = Strategy.ANCHORED_CHECKPOINT
        if policy.strategy is not extends or item.payload.strategy != extends:
            return SpareReason.ALREADY_COMPACTED
    if index == bounds.last_user:
        return SpareReason.LAST_USER_TURN
    if index > bounds.last_user and policy.reach is Reach.FINISHED_TASKS:
        return SpareReason.CURRENT_TASK
    if index >= bounds.recent_from:
        return SpareReason.MOST_RECENT
    if isinstance(item.payload, ToolStep) and item.payload.open_calls:
        return SpareReason.OPEN_CALL
    if item.required:
        return SpareReason.REQUIRED
    if item.supersedes:
        return SpareReason.SUPERSEDES
    if isinstance(item.payload, Summary) or (item.kind is Kind.STATUS_BAR and index != bounds.newest_bar):
        return None
    if item.trust is Trust.TRUSTED:
        return SpareReason.HAS_AUTHORITY
    if item.kind not in _COVERABLE:
        return SpareReason.NEEDS_ITS_FORM
    if item.kind is Kind.USER_TURN and policy.keep_user_turns:
        return SpareReason.USER_WORDS
    return None


def _lines(*parts: tuple[str, str]) -> str:
    return "\n".join(f"{name}: {text}" for name, text in parts if text)
