from __future__ import annotations

import pytest

from serving.prefix import BlockHasher, BlocksStored, CacheKind, EngineTraits, PoolMirror, event_key
from serving.probe.prove.claims import Claim, Compared, Verdict
from serving.probe.prove.verdicts import judge_calls, judge_counters, judge_events, judge_one, judge_rule
from serving.probe.server_info import ServerInfo

KEYS = BlockHasher(2).keys(range(8))
OURS = dict.fromkeys(KEYS[:3], 1)


def mirror_of(*keys: bytes) -> PoolMirror:
    mirror = PoolMirror()
    mirror.apply(0, [BlocksStored(keys=tuple(map(event_key, keys)))])
    return mirror


@pytest.mark.parametrize(
    ("there", "whole_pool", "verdict"),
    [
        (KEYS[:3], True, Verdict.PROVEN),
        (KEYS[:4], True, Verdict.REFUTED),
        (KEYS[:4], False, Verdict.PROVEN),
        (KEYS[:2], False, Verdict.REFUTED),
        (KEYS[3:], False, Verdict.UNPROVEN),
    ],
    ids=["ours and no other", "others in a full pool", "others beside", "one missing", "none is ours"],
)
def test_the_pool_is_judged_by_what_is_missing_and_where_it_is_full_by_what_is_too_many(
    there: tuple[bytes, ...], whole_pool: bool, verdict: Verdict
) -> None:
    assert judge_events(mirror_of(*there), OURS, whole_pool=whole_pool).verdict is verdict


def test_a_mirror_that_missed_something_proves_nothing() -> None:
    mirror = PoolMirror()
    mirror.apply(3, [BlocksStored(keys=tuple(map(event_key, KEYS[:3])))])
    assert judge_events(mirror, OURS, whole_pool=False).verdict is Verdict.UNPROVEN


def call(what: str, predicted: int, reported: int | None) -> Compared:
    return Compared(what=what, surface="chat", prompt_tokens=100, predicted=predicted, reported=reported)


@pytest.mark.parametrize(
    ("hits", "queries", "verdict"),
    [
        (96.0, 200.0, Verdict.PROVEN),
        (95.0, 200.0, Verdict.REFUTED),
        (96.0, 300.0, Verdict.UNPROVEN),
        (None, 200.0, Verdict.UNPROVEN),
    ],
    ids=["equal", "other hits", "somebody else's tokens", "no counters"],
)
def test_counters_are_a_second_witness(hits: float | None, queries: float, verdict: Verdict) -> None:
    found = judge_counters(hits=hits, queries=queries, calls=[call("a", 0, 0), call("b", 96, 96)])
    assert found.verdict is verdict


def test_one_answer_without_a_report_is_no_lie_and_the_others_count() -> None:
    found = judge_calls(Claim.CHAT, [call("a", 0, None), call("b", 96, 96)], ())
    assert found.verdict is Verdict.PROVEN and "1 of 2" in found.sentence
    assert judge_one(Claim.SALT, [call("a", 0, None)], "a", "x").verdict is Verdict.UNPROVEN
    assert judge_one(Claim.SALT, [], "a", "x").verdict is Verdict.UNPROVEN
    assert judge_one(Claim.SALT, [call("a", 0, 96)], "a", "x").verdict is Verdict.REFUTED


def test_an_engine_with_another_rule_is_not_proven_and_one_without_caching_is_refuted() -> None:
    def told(traits: EngineTraits) -> Verdict:
        return judge_rule(ServerInfo(traits=traits, asynchronous=None, kv_events=None)).verdict

    assert told(EngineTraits()) is Verdict.PROVEN
    assert told(EngineTraits(groups=(CacheKind.SLIDING_WINDOW,))) is Verdict.UNPROVEN
    assert told(EngineTraits(caching=False)) is Verdict.REFUTED
    assert judge_rule(None).verdict is Verdict.UNPROVEN
