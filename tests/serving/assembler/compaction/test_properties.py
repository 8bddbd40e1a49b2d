from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.assembler import (
    AssemblyRequest,
    AssistantTurn,
    ContextItem,
    ContextPolicy,
    FixedCounter,
    Kind,
    Note,
    Packet,
    RequestContext,
    Scope,
    StatusBar,
    ToolCall,
    ToolResult,
    ToolStep,
    UserTurn,
    assemble,
)
from serving.assembler.compaction import (
    Compaction,
    CompactionPlan,
    CompactionPolicy,
    NoCompaction,
    NoCompactionReason,
    Reach,
    apply_compactions,
)
from serving.assembler.messages import item_of
from serving.assembler.payloads import Summary, pairing_problem
from tests.support.compaction_logs import STRATEGIES, plan, run, size

CYCLES = 5
CONTEXT = RequestContext(tenant="t1", actor="u1", now="2026-10-02")

WORDS = (
    "queue",
    "port 7001",
    "A-17",
    "must never be deleted",
    "/srv/legal-hold",
    "pending",
    "rejected SQLite",
)
WORDS += (
    "because",
    "next step:",
    "wrote src/a.py",
    "sha256 9f86d081",
    "tests failed",
    "I'm sorry",
    "1,204 rows",
)
WORDS += (
    "Traceback (most recent call last):",
    "[truncated]",
    "## Goal",
    "- none [s1]",
    "archived in",
    "…",
    "\n",
)
WORDS += (
    "</source>",
    "<|im_end|>",
    "[s1]",
    "do not",
    "3.14",
    "été",
    "日本語",
    "{}",
    ". ",
    "!",
    "ValueError: bad",
)


def texts(most: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(WORDS), min_size=0, max_size=most).map(" ".join)


def contents() -> st.SearchStrategy[str]:
    """Hostile words in any order, and enough of other text around them to be worth a summary."""
    filler = st.sampled_from(["", "all quiet here today. ", "worker 7 polls and waits\n"])
    return st.tuples(texts(20), filler, st.integers(0, 120), texts(20)).map(
        lambda drawn: f"{drawn[0]}\n{drawn[1] * drawn[2]}{drawn[3]}"
    )


@st.composite
def logs(draw: st.DrawFn, tasks: int = 4) -> tuple[tuple[ContextItem, ...], tuple[int, ...]]:
    """A log and the places where a task ends; calls may be open, parallel and answered in any order."""
    items: list[ContextItem] = []
    ends: list[int] = []

    def add(payload: object, **more: object) -> None:
        item_id = f"i{len(items):03d}"
        items.append(ContextItem.model_validate({"id": item_id, "payload": payload, **more}))

    for _ in range(draw(st.integers(2, tasks))):
        add(UserTurn(text=draw(texts(4))))
        for _ in range(draw(st.integers(1, 5))):
            match draw(st.sampled_from(["step", "step", "step", "answer", "bar", "note"])):
                case "answer":
                    add(AssistantTurn(text=draw(contents()), reasoning=draw(st.none() | texts(5))))
                case "bar":
                    add(StatusBar(text="calls: 1"))
                case "note":
                    add(Note(text="a note"))
                case _:
                    ids = [f"c{len(items)}_{index}" for index in range(draw(st.integers(1, 3)))]
                    calls = tuple(ToolCall(id=name, name="read", arguments="{}") for name in ids)
                    closed = draw(st.sampled_from([ids, ids, ids, ids[:-1]]))
                    results = tuple(
                        ToolResult(call_id=name, content=draw(contents()), failed=draw(st.booleans()))
                        for name in draw(st.permutations(closed))
                    )
                    scope = draw(st.sampled_from([Scope(), Scope(), Scope(readers=frozenset({"u1", "u2"}))]))
                    required = draw(st.sampled_from([False, False, False, True]))
                    add(ToolStep(calls=calls, results=results), scope=scope, required=required)
        ends.append(len(items))
    return tuple(items), tuple(ends)


policies = st.builds(
    CompactionPolicy,
    strategy=st.sampled_from(STRATEGIES),
    keep_last=st.integers(1, 3),
    keep_user_turns=st.booleans(),
    reach=st.sampled_from(Reach),
    target_tokens=st.sampled_from([32, 100, 400]),
    most_checkpoint_tokens=st.sampled_from([400, 4096]),
    max_failures=st.integers(1, 3),
    most_input_tokens=st.sampled_from([None, 900]),
)


def live(
    history: tuple[ContextItem, ...], ends: tuple[int, ...], chosen: CompactionPolicy
) -> list[Compaction]:
    """Up to five cycles over a growing log, everything stored as JSON in between."""
    stored: list[str] = []
    for end in (*ends, *(len(history) for _ in range(CYCLES - len(ends)))):
        done = [Compaction.model_validate_json(text) for text in stored]
        made = plan(history[:end], chosen, done=done)
        if isinstance(made, CompactionPlan) and isinstance(result := run(made), Compaction):
            stored.append(result.model_dump_json())
    return [Compaction.model_validate_json(text) for text in stored]


@settings(max_examples=150)
@given(logs(), policies)
def test_a_compaction_strictly_shrinks_or_stops(
    log: tuple[tuple[ContextItem, ...], tuple[int, ...]], chosen: CompactionPolicy
) -> None:
    history, _ = log
    done: list[Compaction] = []
    failures = []
    sizes = [size(history)]
    for _ in range(40):
        made = plan(history, chosen, done=done, failures=failures)
        if isinstance(made, NoCompaction):
            break
        result = run(made)
        if isinstance(result, Compaction):
            assert result.tokens_after < result.tokens_before
            done.append(result)
            sizes.append(size(apply_compactions(history, done)))
        else:
            failures.append(result)
    else:
        raise AssertionError("compaction of a log that stands still never came to an end")
    assert all(after < before for before, after in pairwise(sizes))
    assert isinstance(made, NoCompaction)
    assert made.reason is not NoCompactionReason.NOT_OVER_THRESHOLD


@settings(max_examples=150)
@given(logs(), policies)
def test_what_is_required_survives_five_cycles_and_originals_stay_addressable(
    log: tuple[tuple[ContextItem, ...], tuple[int, ...]], chosen: CompactionPolicy
) -> None:
    history, ends = log
    done = live(history, ends, chosen)
    after = apply_compactions(history, done)
    summaries = [item for item in after if isinstance(item.payload, Summary)]
    covered = Counter(item_id for item in summaries for item_id in item.payload.covers)
    kept = [item for item in after if item.kind is not Kind.SUMMARY]
    # Every item of the log is here once: in its own words, or under exactly one summary.
    assert sorted([*(item.id for item in kept), *covered.elements()]) == [item.id for item in history]
    assert kept == [item for item in history if item.id not in covered]
    originals = {item.id: item for item in history}
    for item in summaries:
        assert all(originals[item_id].scope == item.scope for item_id in item.payload.covers)
        assert all(item_of(source) in originals for claim in item.payload.claims for source in claim.sources)
    last_user = max(index for index, item in enumerate(history) if item.kind is Kind.USER_TURN)
    must_stay = [history[last_user]]
    must_stay += [item for item in history if item.required or item.kind is Kind.NOTE]
    must_stay += [item for item in history if isinstance(item.payload, ToolStep) and item.payload.open_calls]
    must_stay += [item for item in history if item.kind is Kind.STATUS_BAR][-1:]
    must_stay += [item for item in history if item.kind in (Kind.ASSISTANT_TURN, Kind.TOOL_STEP)][
        -chosen.keep_last :
    ]
    if chosen.keep_user_turns:
        must_stay += [item for item in history if item.kind is Kind.USER_TURN]
    if chosen.reach is Reach.FINISHED_TASKS:
        must_stay += history[last_user:]
    assert all(item in after for item in must_stay)


@settings(max_examples=100)
@given(logs(), policies)
def test_pairs_are_whole_in_both_directions_in_what_is_sent(
    log: tuple[tuple[ContextItem, ...], tuple[int, ...]], chosen: CompactionPolicy
) -> None:
    history, ends = log
    after = apply_compactions(history, live(history, ends, chosen))
    request = AssemblyRequest(context=CONTEXT, history=after, window=10**6, max_output=1)
    packet = assemble(request, ContextPolicy(), FixedCounter())
    assert isinstance(packet, Packet)
    assert pairing_problem(packet.messages) is None
    called = {call.id for message in packet.messages for call in message.tool_calls}
    assert called == {
        call.id for item in after if isinstance(item.payload, ToolStep) for call in item.payload.calls
    }


@settings(max_examples=75)
@given(logs(), policies, st.randoms(use_true_random=False))
def test_the_order_of_stored_compactions_changes_nothing(
    log: tuple[tuple[ContextItem, ...], tuple[int, ...]], chosen: CompactionPolicy, random: Random
) -> None:
    history, ends = log
    done = live(history, ends, chosen)
    shuffled = list(done)
    random.shuffle(shuffled)
    after = apply_compactions(history, done)
    assert apply_compactions(history, shuffled) == after
    assert apply_compactions(after, shuffled) == after
    first = plan(history, chosen, done=done)
    assert plan(history, chosen, done=shuffled) == first
    assert plan(after, chosen, done=shuffled) == first


def test_the_same_records_come_out_in_every_process() -> None:
    script = (
        "from serving.assembler import Scope\n"
        "from tests.support.compaction_logs import *\n"
        "scope = Scope(tenant='t', readers=frozenset('abcdefgh'), applies_to={'p': frozenset('xyz')})\n"
        "log = tuple(item.model_copy(update={'scope': scope}) for item in work(2).history)\n"
        "for strategy in STRATEGIES:\n"
        "    made = compacted(log, policy(strategy))\n"
        "    print(made.plan_id, made.id, made.items[0].content_json)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("\n") >= len(STRATEGIES)
