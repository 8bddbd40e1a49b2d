"""Which tool results make room for a short text, and the history with those texts in their place.

A result is never masked while it belongs to the current task or to the most recent turn, or while it is the
only evidence of a failure. Otherwise a repeated one and boilerplate always are, and of the rest the largest,
the older first among equals, while all results together are over a threshold. A result that was masked before
stays masked, in the bytes that it was first shown with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from pydantic import Field

from serving.assembler.items import ContextItem
from serving.assembler.kinds import Kind
from serving.assembler.messages import part_id
from serving.assembler.observations import returned
from serving.assembler.payloads import ToolResult, ToolStep
from serving.assembler.quoting import quoted_short
from serving.assembler.record import SORTED, Record, digest
from serving.errors import UsageError

CountTokens: TypeAlias = Callable[[str], int]
"""Tokens of a text, the same number for the same text; an estimate will do, the rendered count decides."""

_HASH_CHARACTERS: Final = 12


class MaskReason(StrEnum):
    """Why a result is masked."""

    FROZEN = "frozen"
    """It was masked in an earlier request, and what was sent stays as it was sent."""
    REPEATED = "repeated"
    """Another result with the same content stays."""
    BOILERPLATE = "boilerplate"
    """The tool's contract says that its results are not worth keeping."""
    OVER_THRESHOLD = "over_threshold"


class KeepReason(StrEnum):
    """Why a result may not be masked."""

    CURRENT_TASK = "current_task"
    MOST_RECENT_TURN = "most_recent_turn"
    ONLY_EVIDENCE_OF_FAILURE = "only_evidence_of_failure"
    NOT_SMALLER = "not_smaller"
    """The replacement has at least as many tokens."""


class MaskingLimits(Record):
    """When size alone is a reason, and which tools return boilerplate."""

    threshold: int = Field(ge=0)
    """Tokens of all results together, above which the largest are masked."""
    target: int | None = Field(default=None, ge=0)
    """Tokens to come down to; None: the threshold. A lower one masks more at once and breaks fewer prefixes."""
    boilerplate_tools: Annotated[frozenset[str], SORTED] = frozenset()
    """Names of further tools whose results are not worth keeping; a contract may say so itself."""

    def _problem(self) -> str | None:
        if self.target is not None and self.target > self.threshold:
            return f"the target must not exceed the threshold, but {self.target} > {self.threshold}"
        return None


class Mask(Record):
    """One result and the text that stands for it."""

    owner: str
    """`part_id(item id, call id)`, as in spans and manifests."""
    reason: MaskReason
    content_sha256: str
    """Of the content that is replaced; another content under the same owner is refused."""
    text: str
    tokens_before: int
    tokens_after: int


class Kept(Record):
    """One result that may not be masked."""

    owner: str
    reason: KeepReason


class MaskingPlan(Record):
    """What to replace, in log order; `frozen` goes into the next plan."""

    masks: tuple[Mask, ...]
    kept: tuple[Kept, ...]
    tokens_before: int
    """Of all results as they came in."""
    tokens_after: int
    frozen: dict[str, str]
    """Owner → text of everything masked so far; to be stored, also over a restart."""


@dataclass(frozen=True, slots=True)
class _Observation:
    owner: str
    item_id: str
    tool: str
    result: ToolResult
    tokens: int
    sha256: str

    @property
    def content(self) -> str:
        return self.result.content


def plan_masking(
    history: Sequence[ContextItem],
    limits: MaskingLimits,
    count: CountTokens,
    *,
    frozen: Mapping[str, str] | None = None,
    current_task: frozenset[str] | None = None,
) -> MaskingPlan:
    """Decide for every tool result of `history`; pure, and nothing in `history` changes.

    `frozen`: owner → text of every result masked in an earlier request (`MaskingPlan.frozen`).
    `current_task`: ids of the items of the current task; None: everything after the last user turn.
    Of repeated results one stays, a protected one where there is one, else the earliest. Planning again over
    the masked history, or over the raw one with the new `frozen`, changes nothing.
    """
    frozen = {} if frozen is None else frozen
    everything = _observations(history, count)
    # A result that holds its frozen text was masked before: it is evidence of nothing any more.
    raw = [one for one in everything if frozen.get(one.owner) != one.content]
    kept = _protected(raw, history, current_task, frozen)
    texts = {one.owner: frozen.get(one.owner, _replacement(one)) for one in raw}
    sizes = {one.owner: count(texts[one.owner]) for one in raw}
    for one in raw:
        if sizes[one.owner] >= one.tokens:
            kept.setdefault(one.owner, KeepReason.NOT_SMALLER)
    free = [one for one in raw if one.owner not in kept]
    reasons = _always(raw, free, limits, frozen)
    before = sum(one.tokens for one in everything)
    after = before - sum(one.tokens - sizes[one.owner] for one in free if one.owner in reasons)
    if after > limits.threshold:
        target = limits.threshold if limits.target is None else limits.target
        # The sort is stable, so among equals the older one comes first.
        for one in sorted(free, key=lambda one: -one.tokens):
            if after <= target:
                break
            if one.owner not in reasons:
                reasons[one.owner] = MaskReason.OVER_THRESHOLD
                after -= one.tokens - sizes[one.owner]
    masks = tuple(
        Mask(
            owner=one.owner,
            reason=reasons[one.owner],
            content_sha256=one.sha256,
            text=texts[one.owner],
            tokens_before=one.tokens,
            tokens_after=sizes[one.owner],
        )
        for one in raw
        if one.owner in reasons
    )
    return MaskingPlan(
        masks=masks,
        kept=tuple(Kept(owner=one.owner, reason=kept[one.owner]) for one in raw if one.owner in kept),
        tokens_before=before,
        tokens_after=after,
        frozen={**frozen, **{mask.owner: mask.text for mask in masks}},
    )


def apply_masking(history: Sequence[ContextItem], plan: MaskingPlan) -> tuple[ContextItem, ...]:
    """`history` with the planned texts: new items where something changed, the same ones elsewhere.

    Applying a plan twice changes nothing more. `UsageError` when a planned result is not in `history`, or has
    another content than the plan was made for.
    """
    masks = {mask.owner: mask for mask in plan.masks}
    present = {one.owner for one in returned(history)}
    if missing := [owner for owner in masks if owner not in present]:
        raise UsageError(f"The plan masks {missing[0]}, which is not in this history; plan again for it.")
    return tuple(_masked_item(item, masks) for item in history)


def _masked_item(item: ContextItem, masks: Mapping[str, Mask]) -> ContextItem:
    if not isinstance(item.payload, ToolStep):
        return item
    results = tuple(
        _masked_result(result, masks.get(part_id(item.id, result.call_id))) for result in item.payload.results
    )
    if results == item.payload.results:
        return item
    step = item.payload.model_copy(update={"results": results})
    # The size that was given for the item was that of its old text.
    return item.model_copy(update={"payload": step, "tokens": None})


def _masked_result(result: ToolResult, mask: Mask | None) -> ToolResult:
    if mask is None or result.content == mask.text:
        return result
    if digest(result.content) != mask.content_sha256:
        raise UsageError(
            f"The plan for {mask.owner} was made for content {mask.content_sha256[:_HASH_CHARACTERS]}, but "
            f"this history holds {digest(result.content)[:_HASH_CHARACTERS]}; plan again for it."
        )
    return result.model_copy(update={"content": mask.text})


def _protected(
    raw: Sequence[_Observation],
    history: Sequence[ContextItem],
    current_task: frozenset[str] | None,
    frozen: Mapping[str, str],
) -> dict[str, KeepReason]:
    current = _since_last_user_turn(history) if current_task is None else current_task
    steps = [item.id for item in history if item.kind is Kind.TOOL_STEP]
    kept: dict[str, KeepReason] = {}
    for one in raw:
        if one.item_id in current:
            kept[one.owner] = KeepReason.CURRENT_TASK
        elif one.item_id in steps[-1:]:
            kept[one.owner] = KeepReason.MOST_RECENT_TURN
    for same in _by_content(one for one in raw if one.result.failed):
        if not any(one.owner in kept for one in same):
            # One copy proves the failure as well as all; best one that was never masked.
            witness = next((one for one in same if one.owner not in frozen), same[0])
            kept[witness.owner] = KeepReason.ONLY_EVIDENCE_OF_FAILURE
    return kept


def _since_last_user_turn(history: Sequence[ContextItem]) -> frozenset[str]:
    last = max((index for index, item in enumerate(history) if item.kind is Kind.USER_TURN), default=-1)
    return frozenset(item.id for item in history[last + 1 :])


def _always(
    raw: Sequence[_Observation],
    free: Sequence[_Observation],
    limits: MaskingLimits,
    frozen: Mapping[str, str],
) -> dict[str, MaskReason]:
    """Owners that are masked whatever the size of the whole."""
    may = {one.owner for one in free}
    reasons = {one.owner: MaskReason.FROZEN for one in free if one.owner in frozen}
    for one in free:
        if one.tool in limits.boilerplate_tools:
            reasons.setdefault(one.owner, MaskReason.BOILERPLATE)
    for same in _by_content(one for one in raw if one.owner not in reasons):
        stays = next((one for one in same if one.owner not in may), same[0])
        for one in same:
            if one is not stays and one.owner in may:
                reasons[one.owner] = MaskReason.REPEATED
    return reasons


def _by_content(observations: Iterable[_Observation]) -> list[list[_Observation]]:
    groups: defaultdict[str, list[_Observation]] = defaultdict(list)
    for one in observations:
        groups[one.sha256].append(one)
    return list(groups.values())


def _observations(history: Sequence[ContextItem], count: CountTokens) -> list[_Observation]:
    return [
        _Observation(
            owner=one.owner,
            item_id=one.item_id,
            tool=one.call.name,
            result=one.result,
            tokens=count(one.result.content),
            sha256=digest(one.result.content),
        )
        for one in returned(history)
    ]


def _replacement(one: _Observation) -> str:
    """A text that depends on the result alone, never on the plan: the same in every request."""
    where = (
        "" if one.result.artifact_ref is None else f", kept as {quoted_short(one.result.artifact_ref, 200)}"
    )
    outcome = "failed " if one.result.failed else ""
    return (
        f"[{outcome}result of {quoted_short(one.tool, 64)} left out: {len(one.content)} characters, "
        f"sha256 {one.sha256[:_HASH_CHARACTERS]}{where}]"
    )
