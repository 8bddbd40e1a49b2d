"""`plan_compaction`: whether a log is due for compaction, what may go, and what to ask a summariser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serving.assembler.compaction.apply import apply_where_readable
from serving.assembler.compaction.breaker import retry_at
from serving.assembler.compaction.policy import CompactionPolicy
from serving.assembler.compaction.records import (
    Compaction,
    CompactionFailure,
    CompactionPlan,
    CountTokens,
    Covered,
    NoCompaction,
    NoCompactionReason,
    Replacement,
    Spared,
    SpareReason,
)
from serving.assembler.compaction.strategies import strategy_named
from serving.assembler.compaction.strategy import Asked, CompactionStrategy, Situation
from serving.assembler.compaction.survey import Eligible, Survey, framed, survey
from serving.assembler.items import ContextItem
from serving.assembler.payloads import Summary, UserTurn

_ID_CHARACTERS = 12


def plan_compaction(
    history: Sequence[ContextItem],
    policy: CompactionPolicy,
    *,
    count: CountTokens,
    budget: int,
    used: int,
    done: Sequence[Compaction] = (),
    failures: Sequence[CompactionFailure] = (),
    rendered: Mapping[str, int] | None = None,
) -> CompactionPlan | NoCompaction:
    """Decide for `history`, of which `done` covers a part already; pure, and nothing in it changes.

    `history` is the log before masking, with or without `done` applied to it, and without what the reader may
    not see: what is planned here is sent to a summariser. `used` are the tokens of the rendered prompt as it
    would go out now; `rendered` are those of single items in it by id (`Rendered.tokens_by_item`).
    """
    limit = int(policy.threshold * budget)
    strategy = strategy_named(policy.strategy)
    current = apply_where_readable(history, done)
    log_items = _log_items(current)

    def no(
        reason: NoCompactionReason, spared: Sequence[Spared] = (), retry: int | None = None
    ) -> NoCompaction:
        return NoCompaction(reason=reason, used=used, limit=limit, spared=tuple(spared), retry_at_items=retry)

    if not policy.compacts:
        return no(NoCompactionReason.STRATEGY_NONE)
    if used <= limit:
        return no(NoCompactionReason.NOT_OVER_THRESHOLD)
    if (retry := retry_at(policy, strategy.version, log_items, done, failures)) is not None:
        return no(NoCompactionReason.BREAKER_OPEN, retry=retry)
    found = survey(current, policy, count, rendered or {})
    situation = Situation(
        policy=policy,
        count=count,
        asked_last=next((item for item in reversed(current) if isinstance(item.payload, UserTurn)), None),
        input_limit=(policy.most_input_tokens or budget) - policy.target_tokens,
        excess=used - int(policy.down_to * budget),
    )
    groups = strategy.groups(found.eligible, situation)
    if not groups:
        return no(NoCompactionReason.NOTHING_ELIGIBLE, _spared(found, current, ()))
    made = [_replacement(group, strategy, situation) for group in groups]
    replacements = [one for one in made if isinstance(one, Replacement)]
    if not replacements:
        first = next(one for one in made if isinstance(one, NoCompactionReason))
        return no(first, _spared(found, current, ()))
    return CompactionPlan(
        policy=policy,
        strategy_version=strategy.version,
        replacements=tuple(replacements),
        spared=_spared(found, current, replacements),
        log_items=log_items,
    )


def summary_id(plan_id: str, number: int) -> str:
    """The item id of the summary for replacement `number` of a plan."""
    return f"summary-{plan_id[:_ID_CHARACTERS]}-{number}"


def _replacement(
    group: Sequence[Eligible], strategy: CompactionStrategy, situation: Situation
) -> Replacement | NoCompactionReason:
    before = sum(one.tokens for one in group)
    stands_for = tuple(item_id for one in group for item_id in _originals(one))
    empty = Summary(text="-", strategy=strategy.name, version=strategy.version, covers=stands_for)
    asked = strategy.ask(
        group, before - situation.count(framed(summary_id("0" * _ID_CHARACTERS, 0), empty)), situation
    )
    if not isinstance(asked, Asked):
        return asked
    return Replacement(
        covers=tuple(Covered(id=one.item.id, sha256=one.item.sha256) for one in group),
        stands_for=stands_for,
        scope=group[0].item.scope,
        extends=tuple(one.earlier for one in group if one.earlier is not None),
        tasks=asked.tasks,
        verbatim=asked.verbatim,
        tokens_before=before,
        most_tokens=min(situation.policy.most_checkpoint_tokens, situation.input_limit // 2),
    )


def _originals(one: Eligible) -> tuple[str, ...]:
    return (one.item.id,) if one.earlier is None else one.earlier.covers


def _log_items(current: Sequence[ContextItem]) -> int:
    """Items of the log itself, those under a summary counted instead of it."""
    return sum(len(item.payload.covers) if isinstance(item.payload, Summary) else 1 for item in current)


def _spared(
    found: Survey, current: Sequence[ContextItem], replacements: Sequence[Replacement]
) -> tuple[Spared, ...]:
    """Everything that is not covered, in log order."""
    covered = {one.id for replacement in replacements for one in replacement.covers}
    reasons = {one.id: one.reason for one in found.spared}
    return tuple(
        Spared(id=item.id, reason=reasons.get(item.id, SpareReason.OUT_OF_REACH_OF_STRATEGY))
        for item in current
        if item.id not in covered
    )
