"""From the admitted log to the history of one packet: summaries, masks, and the bar that the assembler builds.

The log stays as it is; what is shown in its place goes to the next request in a `Carry`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from serving.assembler.break_even import BarMode
from serving.assembler.carry import Carry, PlacedBar
from serving.assembler.compaction import Compaction
from serving.assembler.compaction.apply import apply_where_readable
from serving.assembler.counter import CHARACTERS_PER_TOKEN
from serving.assembler.gates import Admitted
from serving.assembler.items import ContextItem
from serving.assembler.kinds import Kind
from serving.assembler.masking import MaskingPlan, apply_masking, plan_masking
from serving.assembler.payloads import ToolContract
from serving.assembler.policy import ContextPolicy
from serving.assembler.request import AssemblyRequest
from serving.assembler.status_bar import Bar, build_bar
from serving.assembler.status_state import BarState
from serving.errors import UsageError

BAR_ID = "status-bar"
"""Of the bar that the assembler builds; those that stay are `status-bar-000`, `status-bar-001` …"""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What stands in the history, and what was done to the log for it."""

    history: tuple[ContextItem, ...]
    candidates: tuple[ContextItem, ...]
    carry: Carry
    compactions: tuple[Compaction, ...]
    """Those of the carry that this reader may see in place of what they cover."""
    covered: tuple[ContextItem, ...]
    """Items of the log that a summary stands for."""
    masking: MaskingPlan | None
    bar: Bar | None


def estimated_tokens(text: str) -> int:
    """Tokens of a text, before anything is rendered: one for every started group of four characters."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def prepare(admitted: Admitted, request: AssemblyRequest, policy: ContextPolicy) -> Prepared:
    """Put summaries, masks and the bar in place; without any, the log is the history.

    Summaries first, then masks over what still stands; a bar that stays is placed by ids, which masking keeps.
    The bar reads the log as it came in. Raises `UsageError` for a log that no longer holds what was compacted.
    """
    carry = request.carry
    # A summary has the scope of all that it covers: who may read one may read all of it, or sees neither.
    history = apply_where_readable(admitted.history, carry.compactions)
    standing = {item.id for item in history}
    compactions = tuple(
        compaction for compaction in carry.compactions if _is_in_force(compaction, admitted.history, standing)
    )
    masking = _masking(history, admitted, carry, policy)
    if masking is not None:
        history = apply_masking(history, masking)
        carry = carry.model_copy(update={"masked": masking.frozen})
    bar = _bar(admitted, request, policy)
    candidates = admitted.candidates
    if bar is not None and policy.status_bar is not None:
        if policy.status_bar.mode is BarMode.APPEND:
            carry = carry.model_copy(update={"bars": _with_bar(carry.bars, admitted.history, bar)})
        else:
            candidates = (*candidates, _bar_item(bar, BAR_ID))
    return Prepared(
        history=_with_bars(history, carry.bars),
        candidates=candidates,
        carry=carry,
        compactions=compactions,
        covered=tuple(item for item in admitted.history if item.id not in standing),
        masking=masking,
        bar=bar,
    )


def _is_in_force(compaction: Compaction, log: Sequence[ContextItem], standing: Set[str]) -> bool:
    """Whether anything that it covers was there to be covered, and is not shown itself."""
    logged = {item.id for item in log}
    return any(
        one.item.id in standing or any(covered.id in logged - standing for covered in one.covers)
        for one in compaction.replaced
    )


def _masking(
    history: Sequence[ContextItem], admitted: Admitted, carry: Carry, policy: ContextPolicy
) -> MaskingPlan | None:
    if policy.masking is None:
        return None
    marked = {
        item.payload.spec.name
        for item in (*admitted.tools, *admitted.history)
        if isinstance(item.payload, ToolContract) and item.payload.boilerplate
    }
    limits = policy.masking.model_copy(
        update={"boilerplate_tools": policy.masking.boilerplate_tools | marked}
    )
    return plan_masking(history, limits, estimated_tokens, frozen=carry.masked)


def _bar(admitted: Admitted, request: AssemblyRequest, policy: ContextPolicy) -> Bar | None:
    if policy.status_bar is None:
        return None
    given = [item.id for item in (*admitted.candidates, *admitted.history) if item.kind is Kind.STATUS_BAR]
    if given:
        raise UsageError(
            f"The policy '{policy.name}' builds the status bar, and the request brings one too, {given[0]}; leave "
            "it out, or use a policy without 'status_bar'."
        )
    state = request.bar if request.bar is not None else BarState(now=request.context.now)
    return build_bar(admitted.history, state, policy.status_bar)


def _with_bar(bars: Sequence[PlacedBar], history: Sequence[ContextItem], bar: Bar) -> tuple[PlacedBar, ...]:
    """`bars` and the new one, unless it says what the last one says: then that one still holds."""
    item = _bar_item(bar, f"{BAR_ID}-{len(bars):03d}")
    if bars and bars[-1].item.payload == item.payload:
        return tuple(bars)
    return (*bars, PlacedBar(after=history[-1].id if history else None, item=item))


def _bar_item(bar: Bar, item_id: str) -> ContextItem:
    return bar.item(item_id).model_copy(update={"owner": "assembler"})


def _with_bars(history: Sequence[ContextItem], bars: Sequence[PlacedBar]) -> tuple[ContextItem, ...]:
    """`history` with every bar at its place; one whose place is gone goes with it."""
    placed = [bar.item for bar in bars if bar.after is None]
    for item in history:
        placed.append(item)
        placed.extend(bar.item for bar in bars if bar.after == item.id)
    return tuple(placed)
