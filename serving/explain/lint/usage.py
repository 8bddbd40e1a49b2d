"""What a server reports of its tokens, held against what its requests must have cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from serving.explain.lint.entry import LogEntry, ReportedUsage
from serving.prefix import Prediction


class UsageProblem(StrEnum):
    """A report that cannot be right, does not say enough, or says something else than was predicted."""

    COUNT_DIFFERS = "other prompt tokens"
    IDS_DIFFER = "other prompt ids"
    NOT_WHOLE_BLOCKS = "no whole blocks"
    ABOVE_CEILING = "above the ceiling"
    WARM_START = "warm at the start"
    MORE_THAN_STORED = "more than was stored"
    LESS_THAN_PREDICTED = "less than predicted"
    DETAILS_NULL = "no cached tokens reported"
    USAGE_MISSING = "no usage"


@dataclass(frozen=True, slots=True)
class UsageFlag:
    """One problem of one request: what was expected, what came, what to do."""

    problem: UsageProblem
    sentence: str


@dataclass(frozen=True, slots=True)
class Expected:
    """What the lab says of a request."""

    prediction: Prediction
    cached_tokens: int
    possible_tokens: int
    """Cached tokens at most: with every reply whose ids the log does not hold."""
    same_ids: bool | None
    """Whether the server read the rendered ids; None: the log does not tell."""
    block_size: int
    first: bool


def check_usage(entry: LogEntry, expected: Expected) -> Iterator[UsageFlag]:
    """Every problem of one request's report."""
    if expected.same_ids is False:
        yield UsageFlag(
            UsageProblem.IDS_DIFFER,
            "The server read other ids than this model's template gives: it rewrites the request, or has another "
            "template or tokenizer. The server's ids count here.",
        )
    usage = entry.usage
    if usage is None:
        yield UsageFlag(UsageProblem.USAGE_MISSING, _why_missing(entry))
        return
    prompt = expected.prediction.prompt_tokens
    if usage.prompt_tokens is not None and usage.prompt_tokens != prompt:
        yield UsageFlag(
            UsageProblem.COUNT_DIFFERS,
            f"Rendered here the prompt has {prompt:,} tokens, and the server reports {usage.prompt_tokens:,}: the "
            "log is of another model or template, or the server changes the request.",
        )
        return
    yield from _check_cached(usage, expected, prompt)


def _check_cached(usage: ReportedUsage, expected: Expected, prompt: int) -> Iterator[UsageFlag]:
    cached, size = usage.cached_tokens, expected.block_size
    if cached is None:
        yield UsageFlag(
            UsageProblem.DETAILS_NULL,
            f"prompt_tokens_details is null, so hits cannot be seen ({expected.cached_tokens:,} tokens predicted): "
            "start vLLM with --enable-prompt-tokens-details.",
        )
    elif cached % size:
        why = (
            "all but the last token is what a disaggregated deployment reports for a prompt that another instance "
            "prefilled, not what was reused"
            if cached == prompt - 1
            else "the block size is another one, or this is not a count of reused blocks"
        )
        yield UsageFlag(
            UsageProblem.NOT_WHOLE_BLOCKS,
            f"{cached:,} cached tokens of {prompt:,} are impossible with blocks of {size}: {why}.",
        )
    elif cached > expected.prediction.ceiling_tokens:
        yield UsageFlag(
            UsageProblem.ABOVE_CEILING,
            f"{cached:,} cached tokens of {prompt:,} are impossible: the last token is always computed, so "
            f"{expected.prediction.ceiling_tokens:,} is the most.",
        )
    elif cached > max(expected.cached_tokens, expected.possible_tokens):
        yield _too_many(cached, expected)
    elif cached < expected.cached_tokens:
        yield UsageFlag(
            UsageProblem.LESS_THAN_PREDICTED,
            f"{expected.cached_tokens:,} cached tokens predicted, {cached:,} reported: blocks were evicted (give "
            "--num-blocks), the cache was reset, requests overlapped, or several replicas answer.",
        )


def _too_many(cached: int, expected: Expected) -> UsageFlag:
    if expected.first:
        return UsageFlag(
            UsageProblem.WARM_START,
            f"The first request met {cached:,} cached tokens: the server was warm before this log begins. A reset "
            "that answers true may have done nothing: prove it with a canary (ctxlab doctor URL --reset).",
        )
    return UsageFlag(
        UsageProblem.MORE_THAN_STORED,
        f"{cached:,} cached tokens reported, and the log's requests can have stored {expected.cached_tokens:,} of "
        "this prompt: requests that are not in the log filled the cache, or this one was preempted and its own "
        "blocks were counted as hits (see vllm:num_preemptions).",
    )


def _why_missing(entry: LogEntry) -> str:
    if not entry.answered:
        return "The log has no response to this request."
    if not entry.streamed:
        return "The response has no usage."
    if entry.asked_for_usage:
        return (
            "The usage was asked for and is not there: it comes in a chunk of its own after finish_reason, so read "
            "the stream up to [DONE]."
        )
    return 'A streamed response has no usage unless asked: send "stream_options": {"include_usage": true}.'
