"""`finish`: from the answers of a summariser to a compaction, or to a failure that says why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serving.assembler.compaction.answers import AnswerRefusedError, check_answer
from serving.assembler.compaction.plan import summary_id
from serving.assembler.compaction.records import (
    Compaction,
    CompactionFailure,
    CompactionPlan,
    CountTokens,
    RefusalReason,
    Refused,
    Replaced,
    Replacement,
    SummaryAnswer,
    SummaryCall,
)
from serving.assembler.compaction.strategies import strategy_named
from serving.assembler.compaction.survey import framed
from serving.assembler.items import ContextItem
from serving.assembler.payloads import Summary
from serving.errors import UsageError


def finish(
    plan: CompactionPlan, answers: Sequence[SummaryAnswer], count: CountTokens
) -> Compaction | CompactionFailure:
    """Check the answers to `plan.tasks`, in their order, and put together what stands for the covered items.

    Where a plan makes several summaries, a refused one is left out and its items stay; a failure is a plan of
    which nothing is left. Pure: equal answers give equal bytes. `UsageError` for another number of answers
    than of tasks.
    """
    if len(answers) != len(plan.tasks):
        raise UsageError(
            f"Every task of a plan takes one answer, but {len(answers)} came for {len(plan.tasks)} tasks; give "
            "them in the order of plan.tasks."
        )
    plan_id, calls = plan.id, _calls(answers)
    replaced: list[Replaced] = []
    refused: list[Refused] = []
    before = after = 0
    for number, (replacement, own) in enumerate(_shares(plan, answers)):
        try:
            item, tokens = _summarised(plan, summary_id(plan_id, number), replacement, own, count)
        except AnswerRefusedError as refusal:
            refused.append(_refused(replacement, refusal.reason, refusal.detail))
            continue
        replaced.append(Replaced(item=item, covers=replacement.covers))
        before += replacement.tokens_before
        after += tokens
    if not replaced:
        return _failure(plan, refused, calls)
    return Compaction(
        plan_id=plan_id,
        strategy=plan.strategy,
        strategy_version=plan.strategy_version,
        policy_version=plan.policy.version,
        replaced=tuple(replaced),
        refused=tuple(refused),
        calls=calls,
        tokens_before=before,
        tokens_after=after,
        log_items=plan.log_items,
    )


def call_failed(
    plan: CompactionPlan, detail: str, answers: Sequence[SummaryAnswer] = ()
) -> CompactionFailure:
    """The failure to store when a call of the summariser itself failed.

    `detail` is the client's sentence, `answers` what came before it, so that its tokens are counted too.
    """
    refused = [_refused(replacement, RefusalReason.CALL_FAILED, detail) for replacement in plan.replacements]
    return _failure(plan, refused, _calls(answers))


def _calls(answers: Sequence[SummaryAnswer]) -> tuple[SummaryCall, ...]:
    return tuple(
        SummaryCall(
            model=answer.model, prompt_tokens=answer.prompt_tokens, output_tokens=answer.output_tokens
        )
        for answer in answers
    )


def _shares(
    plan: CompactionPlan, answers: Sequence[SummaryAnswer]
) -> Iterator[tuple[Replacement, Sequence[SummaryAnswer]]]:
    start = 0
    for replacement in plan.replacements:
        end = start + len(replacement.tasks)
        yield replacement, answers[start:end]
        start = end


def _summarised(
    plan: CompactionPlan,
    item_id: str,
    replacement: Replacement,
    answers: Sequence[SummaryAnswer],
    count: CountTokens,
) -> tuple[ContextItem, int]:
    """The summary as an item, and its size; it is data, whoever wrote it, and read by whom could read all."""
    for task, answer in zip(replacement.tasks, answers, strict=True):
        check_answer(task, answer.text, answer.finish_reason)
    strategy = strategy_named(plan.strategy)
    written = strategy.write(replacement, [answer.text for answer in answers], plan.policy, count)
    summary = Summary(
        text=written.text,
        strategy=plan.strategy,
        version=plan.strategy_version,
        covers=replacement.stands_for,
        claims=written.claims,
        unverified=written.unverified,
    )
    item = ContextItem(
        id=item_id,
        payload=summary,
        owner="compaction",
        source=answers[0].model if answers else "compaction",
        version=plan.strategy_version,
        scope=replacement.scope,
    )
    tokens = count(framed(item.id, summary))
    if tokens >= replacement.tokens_before:
        raise AnswerRefusedError(
            RefusalReason.NOT_SHORTER,
            f"the summary has {tokens} tokens, what it would replace has {replacement.tokens_before}",
        )
    return item, tokens


def _refused(replacement: Replacement, reason: RefusalReason, detail: str) -> Refused:
    return Refused(covers=tuple(covered.id for covered in replacement.covers), reason=reason, detail=detail)


def _failure(
    plan: CompactionPlan, refused: Sequence[Refused], calls: tuple[SummaryCall, ...]
) -> CompactionFailure:
    return CompactionFailure(
        plan_id=plan.id,
        strategy=plan.strategy,
        strategy_version=plan.strategy_version,
        refused=tuple(refused),
        calls=calls,
        log_items=plan.log_items,
    )
