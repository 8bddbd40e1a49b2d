"""The linter over whole logs: sound ones, broken ones, and what must hold of every verdict."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.errors import UsageError
from serving.explain import MissCause
from serving.explain.lint import (
    LintedRequest,
    Linter,
    LintOptions,
    LogReader,
    ReplyIds,
    ReportBuilder,
    SkippedLine,
    UsageProblem,
)
from tests.support.logs import (
    Body,
    answered,
    ask,
    assistant,
    call,
    lint,
    lint_all,
    result,
    system,
    tool,
    user,
    write_log,
)

RULES = system("You are a careful harbour assistant. Answer in one sentence and name the berth.")
QUESTION, ANSWER, NEXT = user("Which berth is free?"), assistant("Berth four."), user("And tomorrow?")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@pytest.fixture
def model(models: dict[str, Path]) -> Path:
    return models["qwen2_5"]


# --- lines that are no requests ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{not json", "Expected JSON, got none"),
        (b'{"model": "m", "messages": [{"role": "user"', "the line ends early"),
        (b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', "Expected UTF-8, got byte 0xff"),
        (b"[1, 2]", "one JSON object a line, got a list"),
        (b"null", "got null"),
        (b'{"prompt": "once upon a time"}', "a /v1/completions request"),
        (b'{"messages": []}', "at least one message"),
        (b'{"messages": ["hi"]}', "message 0 as an object, got a text"),
        (b'{"messages": [{"content": "hi"}]}', "message 0 to have a role"),
        (b'{"messages": [{"role": "user", "content": "hi"}], "tools": {}}', "`tools` to be a list"),
        (b'{"messages": [{"role": "user", "content": "hi"}], "tools": [{}]}', "function"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "text part"),
        (
            b'{"messages": [{"role": "user", "content": "hi"}], "continue_final_message": true}',
            "goes on with",
        ),
        (b'{"messages": [{"role": "user", "content": "\\ud83d"}]}', "unpaired surrogate U+D83D"),
        (b'{"messages": ' + b"[" * 100_000, "cannot"),
    ],
)
def test_a_line_that_is_no_request_is_named_and_left_out(
    log: Path, model: Path, line: bytes, said: str
) -> None:
    sound = json.dumps(ask(RULES, QUESTION)).encode()
    log.write_bytes(b"\n".join([sound, b"", line, sound]) + b"\n")
    first, skipped, last = lint_all(log, model, block_size=8)
    assert isinstance(skipped, SkippedLine)
    assert (skipped.line, said in skipped.reason) == (3, True), skipped.reason
    assert isinstance(first, LintedRequest) and isinstance(last, LintedRequest)
    assert last.miss.cached_tokens == (last.miss.prompt_tokens - 1) // 8 * 8


def test_an_empty_log_has_no_verdict(log: Path, model: Path) -> None:
    log.write_bytes(b"")
    assert lint_all(log, model) == []


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n", b"\n\n \n"])
def test_a_log_of_one_line_has_one_cold_request(log: Path, model: Path, ending: bytes) -> None:
    log.write_bytes(b"\xef\xbb\xbf" + json.dumps(ask(RULES, QUESTION)).encode() + ending)
    (only,) = lint_all(log, model)
    assert isinstance(only, LintedRequest)
    assert only.miss.tokens == {MissCause.NEW: only.miss.prompt_tokens}


def test_a_log_without_line_breaks_does_not_fill_the_memory(log: Path, model: Path) -> None:
    log.write_bytes(b"x" * 5_000 + b"\n" + json.dumps(ask(RULES, QUESTION)).encode() + b"\n")
    with LogReader(log, longest_line=1_000) as reader:
        long, sound = Linter(reader, model, LintOptions()).requests()
    assert isinstance(long, SkippedLine) and "longer" in long.reason
    assert isinstance(sound, LintedRequest) and sound.line == 2


@pytest.mark.parametrize("place", ["/dev/null", "absent.jsonl", "."])
def test_what_is_no_file_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(UsageError, match="Expected a log file"):
        LogReader(tmp_path / place)


# --- what a request may hold ------------------------------------------------------------------------------


def test_content_parts_tools_without_parameters_and_null_content_are_read(log: Path, model: Path) -> None:
    bare: Body = {"type": "function", "function": {"name": "look"}}
    parts = {
        "role": "user",
        "content": [{"type": "text", "text": "Which berth"}, {"type": "text", "text": "is free?"}],
    }
    used = assistant(None, calls=[call("look", "{}")])
    first, second = lint(
        log,
        model,
        [ask(RULES, parts, tools=[bare]), ask(RULES, parts, used, result("four"), tools=[bare])],
        block_size=8,
    )
    assert second.miss.lost_tokens == 0
    assert second.miss.cached_tokens == first.miss.prompt_tokens // 8 * 8


def test_a_batch_line_and_a_usage_beside_the_request_are_read(log: Path, model: Path) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 0}}
    batch = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": ask(RULES, QUESTION)}
    first, second = lint(
        log, model, [batch, {"request": ask(RULES, QUESTION), "usage": usage}], server_usage=True
    )
    assert [flag.problem for flag in first.flags] == [UsageProblem.USAGE_MISSING]
    assert [flag.problem for flag in second.flags] == [UsageProblem.COUNT_DIFFERS]


def test_only_one_model_of_a_log_is_linted_and_the_others_are_counted(log: Path, model: Path) -> None:
    records = [ask(RULES, QUESTION), {**ask(RULES, QUESTION), "model": "other"}, ask(RULES, QUESTION)]
    write_log(log, records)
    with LogReader(log) as reader:
        linter = Linter(reader, model, LintOptions(block_size=8))
        builder = ReportBuilder("log", LintOptions(block_size=8))
        for item in linter.requests():
            builder.add(item)
        report = builder.report(served_name=linter.served_name, kept=linter.kept())
    assert (report.served_name, report.requests, report.skipped_lines) == ("m", 2, 0)
    assert any("'other' (1)" in note.sentence for note in report.notes)
    chosen = [item for item in lint_all(log, model, served_name="other") if isinstance(item, LintedRequest)]
    assert [item.line for item in chosen] == [2]


def test_a_log_of_another_model_is_told_by_its_counts(log: Path, model: Path) -> None:
    write_log(log, [answered(ask(RULES, QUESTION), ANSWER, prompt=7, cached=0)] * 2)
    options = LintOptions(block_size=8, server_usage=True)
    with LogReader(log) as reader:
        builder = ReportBuilder("log", options)
        linter = Linter(reader, model, options)
        for item in linter.requests():
            builder.add(item)
    report = builder.report(served_name="m", kept=linter.kept())
    assert any("of another model or template" in note.sentence for note in report.notes)


def test_a_conversation_of_ten_thousand_messages_is_read_and_explained(log: Path, model: Path) -> None:
    history = [RULES]
    for number in range(5_000):
        history += [user(f"Question {number}?"), assistant(f"Answer {number}.")]
    edited = [*history]
    edited[9_000] = assistant("Another answer.")
    _, second, third = lint(
        log,
        model,
        [ask(*history, NEXT), ask(*history, NEXT, ANSWER, NEXT), ask(*edited, NEXT)],
        block_size=16,
    )
    assert second.miss.lost_tokens == 0
    assert third.miss.finding is not None and third.miss.broken is not None
    assert third.miss.finding.cause is MissCause.EDITED_MIDDLE
    assert third.miss.broken.message_index == 9_000


# --- replies ----------------------------------------------------------------------------------------------


def test_a_recorded_reply_counts_and_an_unknown_one_gives_a_range(log: Path, model: Path) -> None:
    request, follow = ask(RULES, QUESTION), ask(RULES, QUESTION, ANSWER, NEXT)
    _, unknown = lint(log, model, [request, follow], block_size=4)
    inferred_first, inferred = lint(log, model, [answered(request, ANSWER), follow], block_size=4)
    assert inferred_first.reply_ids is ReplyIds.INFERRED
    assert unknown.miss.cached_tokens < unknown.possible_tokens
    assert unknown.miss.cached_tokens < inferred.miss.cached_tokens == inferred.possible_tokens
    assert inferred.miss.cached_tokens <= unknown.possible_tokens


def test_a_reply_of_another_length_than_the_usage_says_is_unknown(log: Path, model: Path) -> None:
    (first,) = lint(log, model, [answered(ask(RULES, QUESTION), ANSWER, prompt=1, completion=99)])
    assert first.reply_ids is ReplyIds.UNKNOWN


def test_a_reply_with_a_call_is_inferred_only_where_its_length_agrees(log: Path, model: Path) -> None:
    made = assistant("", calls=[call("look", '{"path": "a"}')])
    request, follow = ask(RULES, QUESTION, tools=[tool("look")]), [RULES, QUESTION, made, result("four")]
    told = {
        count: lint(log, model, [answered(request, made, prompt=1, completion=count)])[0]
        for count in range(1, 60)
    }
    right = [count for count, item in told.items() if item.reply_ids is ReplyIds.INFERRED]
    assert right, "one of these lengths is the right one"
    _, second = lint(
        log,
        model,
        [answered(request, made, prompt=1, completion=max(right)), ask(*follow, tools=[tool("look")])],
        block_size=4,
    )
    assert second.miss.lost_tokens == 0


# --- the witness ------------------------------------------------------------------------------------------


def test_of_many_conversations_with_a_clock_each_is_held_against_its_own_turn_before(
    log: Path, model: Path
) -> None:
    records: list[Body] = []
    for turn in range(3):
        for person in range(4):
            head = system(f"Now: 2026-03-02T09:{turn}{person}:07Z. {RULES['content']}")
            messages = [head, user(f"I am person {person}. Which berth is free?")]
            for past in range(turn):
                messages += [
                    assistant(f"Berth {past} for {person}."),
                    user(f"Person {person} asks on, {past}."),
                ]
            records.append(ask(*messages))
    for item in lint(log, model, records, block_size=8)[4:]:
        assert item.against == item.line - 4
        assert item.miss.tokens[MissCause.CLOCK] > item.miss.tokens.get(MissCause.NEW, 0)


# --- what must hold of every verdict ----------------------------------------------------------------------


def _mutated(rng: random.Random, messages: list[Body]) -> list[Body]:
    changed = [dict(message) for message in messages]
    match rng.randrange(7):
        case 0:
            changed[0] = system(f"{rng.random()} {changed[0]['content']}")
        case 1 if len(changed) > 3:
            del changed[1:3]
        case 2:
            index = rng.randrange(len(changed))
            changed[index]["content"] = f"{changed[index]['content'] or ''} edited"
        case 3:
            rng.shuffle(changed)
        case 4:
            changed.insert(rng.randrange(len(changed) + 1), user("In between."))
        case _:
            pass
    reply = assistant("Fine.", thought=rng.choice([None, "Hm."]))
    return [*changed, reply, user(f"And {rng.randrange(5)}?")]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), template=st.sampled_from(["qwen3", "qwen2_5", "smollm2"]))
def test_tokens_by_cause_add_up_and_the_range_holds_what_is_cached(
    tmp_path: Path, models: dict[str, Path], seed: int, template: str
) -> None:
    rng = random.Random(seed)
    logs: list[list[Body]] = [[RULES, QUESTION]]
    records: list[Body] = []
    for _ in range(8):
        messages = _mutated(rng, rng.choice(logs))
        logs.append(messages)
        tools = [tool(name) for name in rng.sample(["look", "list", "berth"], rng.randrange(4))]
        request = ask(*messages, tools=tools or None, cache_salt=rng.choice([None, None, "s"]))
        records.append(answered(request, assistant("Fine.")) if rng.random() < 0.5 else request)
    options: dict[str, Any] = {"block_size": rng.choice([1, 8, 16]), "num_blocks": rng.choice([None, 2_000])}
    for item in lint(tmp_path / "log.jsonl", models[template], records, **options):
        miss = item.miss
        assert sum(miss.tokens.values()) == miss.prompt_tokens - miss.cached_tokens
        assert all(tokens > 0 for tokens in miss.tokens.values())
        assert miss.cached_tokens <= item.possible_tokens < miss.prompt_tokens
        assert (miss.broken is None) or item.against is not None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["messages", "role", "content", "tools", "tool_calls", "function", "name", "arguments", "request",
             "response", "usage", "choices", "message", "token_ids", "type", "text", "parameters"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=24,
)  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(_JSON | st.builds(lambda m: {"messages": m}, _JSON), max_size=4),
    raw=st.binary(max_size=40),
)
def test_no_log_whatever_stops_the_linter(
    tmp_path: Path, models: dict[str, Path], lines: list[Any], raw: bytes
) -> None:
    path = tmp_path / "log.jsonl"
    sound = json.dumps(ask(RULES, QUESTION))
    path.write_bytes(
        "\n".join([*map(json.dumps, lines), sound]).encode("utf-8", "surrogatepass") + b"\n" + raw
    )
    found = lint_all(path, models["qwen2_5"], server_usage=True, served_name="m")
    assert any(isinstance(item, LintedRequest) and item.model == "m" for item in found)
