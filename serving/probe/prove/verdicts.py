"""From what was predicted and reported to verdicts: pure, one claim a function."""

from __future__ import annotations

from collections.abc import Sequence

from serving.prefix import EventsLostError, PoolMirror, Unsupported, unsupported
from serving.probe.capabilities import ServerCapabilities
from serving.probe.prove.claims import Claim, Compared, Finding, Verdict
from serving.probe.prove.lies import Case, Lie, NamedLie, fitting_block_sizes, name_lies
from serving.probe.server_info import ServerInfo

_SHOWN = 3
_DETAILS_FLAG = "start vLLM with --enable-prompt-tokens-details and --enable-prefix-caching"


def proven(claim: Claim, sentence: str) -> Finding:
    """The claim holds; `sentence` is the evidence."""
    return Finding(claim=claim, verdict=Verdict.PROVEN, sentence=sentence)


def refuted(claim: Claim, sentence: str) -> Finding:
    """The claim does not hold; `sentence` is the evidence."""
    return Finding(claim=claim, verdict=Verdict.REFUTED, sentence=sentence)


def unproven(claim: Claim, why: str) -> Finding:
    """The claim stays open, and why."""
    return Finding(claim=claim, verdict=Verdict.UNPROVEN, sentence=why)


def judge_canary(found: ServerCapabilities) -> Finding:
    """Whether cached tokens are reported at all, from the canary of `probe_server`."""
    fact = found.cached_tokens
    if fact.value:
        return proven(Claim.REPORTS, f"{fact.how}.")
    if fact.value is None:
        return unproven(Claim.REPORTS, f"{fact.how}.")
    told = any(call.cached_tokens is not None for call in found.canary)
    hint = "" if told else f"; {_DETAILS_FLAG}"
    verdict = refuted if told else unproven
    return verdict(Claim.REPORTS, f"{fact.how}{hint}.")


def judge_rule(info: ServerInfo | None) -> Finding:
    """Whether the engine is one whose rule is known."""
    if info is None:
        return unproven(
            Claim.RULE,
            "The server does not tell its configuration (vLLM does with VLLM_SERVER_DEV_MODE=1), so sliding "
            "windows, speculative decoding or a KV connector would show as differences only.",
        )
    reasons = unsupported(info.traits)
    if Unsupported.CACHING_OFF in reasons:
        return refuted(Claim.RULE, f"{Unsupported.CACHING_OFF}.")
    if reasons:
        return unproven(Claim.RULE, f"Exact numbers cannot be foretold: {'; '.join(reasons)}.")
    scheduler = {True: "asynchronous", False: "synchronous", None: "unknown"}[info.asynchronous]
    return proven(
        Claim.RULE,
        f"It tells of no sliding window, state-space layer, speculation or KV connector; hash "
        f"{info.traits.hash_algorithm}, scheduler {scheduler}.",
    )


def judge_calls(claim: Claim, calls: Sequence[Compared], lies: Sequence[NamedLie]) -> Finding:
    """Whether every report is what was predicted; the first differences where not, and the lie by name."""
    if not calls:
        return unproven(claim, "No request could be made.")
    silent = sum(call.reported is None for call in calls)
    if silent == len(calls):
        return unproven(claim, f"None of {len(calls)} answers reported cached tokens: {_DETAILS_FLAG}.")
    wrong = [call for call in calls if call.reported is not None and call.reported != call.predicted]
    if not wrong:
        told = len(calls) - silent
        return proven(claim, f"{told} of {len(calls)} requests, as predicted to the token.")
    shown = "; ".join(
        f"{call.what}: {call.predicted} predicted, {call.reported} reported" for call in wrong[:_SHOWN]
    )
    named = " ".join(lie.sentence for lie in lies) or "No known formula gives all of its numbers."
    return refuted(claim, f"{len(wrong)} of {len(calls)} differ ({shown}). {named}")


def judge_lies(cases: Sequence[Case], calls: Sequence[Compared], block_size: int) -> tuple[NamedLie, ...]:
    """The lies that explain every report; none where one is missing."""
    reported = [call.reported for call in calls if call.reported is not None]
    return name_lies(cases, reported, block_size) if len(reported) == len(cases) and reported else ()


def judge_block_size(
    told: int | None, cases: Sequence[Case], calls: Sequence[Compared], lies: Sequence[NamedLie]
) -> Finding:
    """Whether hits come in the blocks that the server tells; nothing may have been evicted in these cases."""
    reported = [call.reported for call in calls if call.reported is not None]
    if len(reported) < len(cases) or not any(reported):
        return unproven(Claim.BLOCK_SIZE, "Hits would show it, and none was reported.")
    fitting = fitting_block_sizes(cases, reported, up_to=8 * (told or 128))
    if told is None:
        sizes = f"blocks of {fitting[0]}" if fitting else "no block size"
        return unproven(Claim.BLOCK_SIZE, f"The server does not tell it; its reports fit {sizes}.")
    if fitting == [told]:
        return proven(Claim.BLOCK_SIZE, f"{told}, as told: no other size fits the reports.")
    other = [lie for lie in lies if lie.lie is Lie.OTHER_BLOCK_SIZE]
    if other:
        return refuted(Claim.BLOCK_SIZE, other[0].sentence)
    why = f"several sizes fit the reports: {fitting}" if fitting else "no size fits the reports"
    return unproven(Claim.BLOCK_SIZE, f"It tells {told}, and {why}.")


def judge_one(claim: Claim, calls: Sequence[Compared], what: str, sentence: str) -> Finding:
    """The verdict of the requests called `what`: proven where all of them were reported as predicted."""
    chosen = [call for call in calls if call.what == what]
    if not chosen or any(call.reported is None for call in chosen):
        return unproven(claim, f"No report of {what!r}.")
    numbers = ", ".join(f"{call.reported} of {call.prompt_tokens} tokens" for call in chosen)
    expected = ", ".join(str(call.predicted) for call in chosen)
    if all(call.reported == call.predicted for call in chosen):
        return proven(claim, f"{sentence}: {numbers}.")
    return refuted(claim, f"In {what!r} it reported {numbers}, where {expected} were predicted.")


def judge_counters(hits: float | None, queries: float | None, calls: Sequence[Compared]) -> Finding:
    """Whether the counters of /metrics grew by what the answers say; None: they are not there."""
    if hits is None or queries is None:
        return unproven(Claim.COUNTERS, "There are no vllm:prefix_cache_queries_total and …_hits_total.")
    asked = sum(call.prompt_tokens for call in calls)
    told = sum(call.reported or 0 for call in calls)
    if queries != asked:
        return unproven(
            Claim.COUNTERS,
            f"They counted {queries:,.0f} prompt tokens, and the proof sent {asked:,}: others use the server.",
        )
    if all(call.reported is None for call in calls):
        return unproven(
            Claim.COUNTERS,
            f"They counted {hits:,.0f} tokens from the cache, and no answer reports any: {_DETAILS_FLAG}.",
        )
    sentence = f"They counted {hits:,.0f} tokens from the cache, and the answers {told:,}."
    return proven(Claim.COUNTERS, sentence) if hits == told else refuted(Claim.COUNTERS, sentence)


def judge_events(mirror: PoolMirror, predicted: dict[bytes, int], *, whole_pool: bool) -> Finding:
    """Whether the server's pool holds what was predicted; all of it, where the proof filled the pool."""
    try:
        difference = mirror.difference(predicted)
    except EventsLostError as error:
        return unproven(Claim.EVENTS, str(error))
    blocks = sum(predicted.values())
    missing = sum(difference.only_predicted.values())
    extra = sum(difference.only_on_server.values())
    if missing == blocks and blocks:
        return unproven(
            Claim.EVENTS,
            "No key is the one that was computed: the server's PYTHONHASHSEED or hash algorithm is another.",
        )
    if missing or (whole_pool and extra):
        return refuted(
            Claim.EVENTS,
            f"{missing:,} of {blocks:,} predicted blocks are not there, and {extra:,} others are.",
        )
    rest = "and no other" if whole_pool else f"beside {extra:,} that were there before"
    return proven(Claim.EVENTS, f"All {blocks:,} predicted blocks are in the server's pool, {rest}.")
