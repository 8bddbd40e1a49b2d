"""What people have reported in public about lost prefixes: a minimal log in; cause, message and token out.

Every log is two or three requests long. Blocks of 8 tokens, so that short prompts hit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving.chat import ChatRenderer, ChatTokenizer
from serving.explain import MissCause, Segment
from serving.explain.lint import (
    LintedRequest,
    Linter,
    LintOptions,
    LogReader,
    Notice,
    ReportBuilder,
    UsageProblem,
)
from tests.support.logs import (
    Body,
    answered,
    ask,
    assistant,
    call,
    lint,
    result,
    system,
    tool,
    user,
    write_log,
)

RULES = system("You are a careful harbour assistant. Answer in one sentence and name the berth.")
QUESTION, ANSWER, NEXT = user("Which berth is free?"), assistant("Berth four."), user("And tomorrow?")
LOOK = tool("look")

Lint = Callable[..., list[LintedRequest]]


@pytest.fixture
def linted(tmp_path: Path, models: dict[str, Path]) -> Lint:
    def run(model: str, *records: Body, **options: Any) -> list[LintedRequest]:
        return lint(tmp_path / "log.jsonl", models[model], records, **{"block_size": 8, **options})

    return run


def broke(request: LintedRequest, cause: MissCause) -> Any:
    """The first difference of a request, whose cause must be this one and whose tokens must add up."""
    miss = request.miss
    assert miss.finding is not None
    assert miss.finding.cause is cause, miss.finding
    assert sum(miss.tokens.values()) == miss.prompt_tokens - miss.cached_tokens
    assert miss.tokens[cause] > 0
    return miss.broken


def ids(models: dict[str, Path], model: str, text: str) -> list[int]:
    return list(ChatTokenizer(models[model]).encode(text).ids)


# --- the template -----------------------------------------------------------------------------------------


def test_an_empty_think_block_with_thinking_off_prefills_every_turn_again(linted: Lint) -> None:
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    _, second = linted("qwen3", ask(RULES, QUESTION, **off), ask(RULES, QUESTION, ANSWER, NEXT, **off))
    broken = broke(second, MissCause.TEMPLATE_ASYMMETRY)
    assert broken.stored.segment is Segment.GENERATION_PROMPT
    assert broken.stored_text.startswith("<think>\n\n</think>")
    assert (broken.message_index, broken.role) == (2, "assistant")


def test_a_new_user_message_drops_earlier_reasoning(linted: Lint) -> None:
    loop = [
        RULES,
        QUESTION,
        assistant("", calls=[call("look", "{}")], thought="I look first."),
        result("four"),
    ]
    _, second = linted("qwen3", ask(*loop, tools=[LOOK]), ask(*loop, ANSWER, NEXT, tools=[LOOK]))
    broken = broke(second, MissCause.REASONING_DROPPED)
    assert broken.stored.segment is Segment.THINK_BLOCK
    assert (broken.message_index, broken.role) == (2, "assistant")
    assert broken.stored_text.startswith("<think>")


def test_reasoning_content_that_is_sent_back_is_dropped_in_silence(
    linted: Lint, models: dict[str, Path]
) -> None:
    thought = assistant("Berth four.", thought="Four is empty.")
    output = ids(models, "qwen2_5", "<think>\nFour is empty.\n</think>\n\nBerth four.<|im_end|>")
    _, second = linted(
        "qwen2_5",
        answered(ask(RULES, QUESTION), thought, ids=output),
        ask(RULES, QUESTION, thought, NEXT),
    )
    broken = broke(second, MissCause.REASONING_DROPPED)
    assert broken.message_index == 2
    assert broken.stored_text.startswith("<think>")
    assert "does not print it" in second.miss.finding.detail
    assert second.silent_reasoning == 2


def test_a_template_that_prints_the_date_breaks_at_midnight(linted: Lint, models: dict[str, Path]) -> None:
    def read_on(day: str) -> list[int]:
        rest = f"<|im_end|>\n<|im_start|>user\n{QUESTION['content']}<|im_end|>\n<|im_start|>assistant\n"
        return ids(models, "dated", f"<|im_start|>system\nToday is {day}. {RULES['content']}{rest}")

    _, second = linted(
        "dated",
        answered(ask(RULES, QUESTION), ANSWER, prompt_ids=read_on("02 March 2026")),
        answered(ask(RULES, QUESTION), ANSWER, prompt_ids=read_on("03 March 2026")),
    )
    broken = broke(second, MissCause.TEMPLATE_DATE)
    assert broken.message_index is None or not broken.sent.path
    assert (broken.stored_text[0], broken.sent_text[0]) == ("2", "3")


def test_a_template_that_reads_the_clock_is_told_without_any_break(
    tmp_path: Path, models: dict[str, Path]
) -> None:
    report = report_on(tmp_path, models["dated"], ask(RULES, QUESTION))
    assert [note.notice for note in report.notes] == [Notice.TEMPLATE_CLOCK]


# --- the client -------------------------------------------------------------------------------------------


def test_a_nonce_at_the_head_of_every_request(linted: Lint) -> None:
    heads = [
        system(f"[request {nonce}] {RULES['content']}") for nonce in ("req_56448162f3", "req_51706749a1")
    ]
    _, second = linted("qwen2_5", ask(heads[0], QUESTION), ask(heads[1], QUESTION, ANSWER, NEXT))
    broken = broke(second, MissCause.IDENTIFIER)
    assert (broken.message_index, broken.role) == (0, "system")
    assert "'req_56448162f3' became 'req_51706749a1'" in second.miss.finding.detail


def test_a_date_with_seconds_in_the_system_prompt(linted: Lint) -> None:
    heads = [
        system(f"Now: {time}. {RULES['content']}")
        for time in ("2026-03-02T09:00:01Z", "2026-03-02T09:00:38Z")
    ]
    _, second = linted("qwen2_5", ask(heads[0], QUESTION), ask(heads[1], QUESTION, ANSWER, NEXT))
    broken = broke(second, MissCause.CLOCK)
    assert (broken.message_index, broken.sent.offset) == (0, len("Now: 2026-03-02T09:00:"))
    assert (broken.stored_text[0], broken.sent_text[0]) == ("0", "3")


def test_tools_in_another_order_after_a_reconnect(linted: Lint) -> None:
    tools = [tool("look"), tool("list"), tool("berth")]
    _, second = linted(
        "qwen2_5", ask(RULES, QUESTION, tools=tools), ask(RULES, QUESTION, ANSWER, NEXT, tools=tools[::-1])
    )
    broken = broke(second, MissCause.TOOL_ORDER)
    assert broken.sent.segment is Segment.TOOL_LIST
    assert (broken.stored.tool, broken.sent.tool) == ("look", "berth")


def test_arguments_that_the_client_parsed_and_printed_with_sorted_keys(linted: Lint) -> None:
    written, sorted_again = '{"path": "a.py", "line": 3}', '{"line": 3, "path": "a.py"}'
    _, second = linted(
        "qwen2_5",
        ask(RULES, QUESTION, assistant(calls=[call("look", written)]), result("free"), tools=[LOOK]),
        ask(
            RULES,
            QUESTION,
            assistant(calls=[call("look", sorted_again)]),
            result("free"),
            ANSWER,
            NEXT,
            tools=[LOOK],
        ),
    )
    broken = broke(second, MissCause.JSON_KEY_ORDER)
    assert (broken.message_index, broken.sent.tool, broken.sent.json_path) == (2, "look", "$")
    assert "sort" not in second.miss.finding.advice.lower()


def test_arguments_that_the_server_prints_anew_are_not_the_clients_fault(
    linted: Lint, models: dict[str, Path]
) -> None:
    written = '{"path":"a.py","line":3}'
    output = f'<tool_call>\n{{"name": "look", "arguments": {written}}}\n</tool_call><|im_end|>'
    made = assistant(calls=[call("look", written)])
    _, second = linted(
        "qwen2_5",
        answered(
            ask(RULES, QUESTION, tools=[LOOK]), made, ids=ids(models, "qwen2_5", output), finish="tool_calls"
        ),
        ask(RULES, QUESTION, made, result("free"), tools=[LOOK]),
    )
    broken = broke(second, MissCause.SERVER_ARGUMENTS)
    assert broken.stored.segment is Segment.REPLY
    assert (broken.message_index, broken.sent.tool) == (2, "look")


def test_a_summary_that_replaces_the_history_in_place(linted: Lint) -> None:
    history = [RULES, QUESTION, ANSWER, user("And its depth?"), assistant("Nine metres."), NEXT]
    summary = user("Summary so far: berth four is free, nine metres.")
    _, second = linted("qwen2_5", ask(*history), ask(RULES, summary, NEXT, assistant("Full."), user("Then?")))
    broken = broke(second, MissCause.REWRITTEN_SUMMARY)
    assert (broken.message_index, broken.role) == (1, "user")
    assert "Messages 1 to 4 of the earlier request became message 1" in second.miss.finding.detail


def test_a_status_that_is_rewritten_in_place(linted: Lint) -> None:
    status = [
        system(f"{RULES['content']}\nStatus: {done}")
        for done in ("one berth seen.", "two berths seen, four free.")
    ]
    _, second = linted("qwen2_5", ask(status[0], QUESTION), ask(status[1], QUESTION, ANSWER, NEXT))
    broken = broke(second, MissCause.REWRITTEN_SUMMARY)
    assert broken.message_index == 0
    assert broken.lead.endswith("Status:")


def test_generated_ids_that_are_not_the_retokenised_ones_are_named(
    linted: Lint, models: dict[str, Path]
) -> None:
    (break_id,), (double,) = ids(models, "qwen2_5", "\n"), ids(models, "qwen2_5", "\n\n")
    text = "Berth four.\n\nIt is nine metres deep."
    first, last = text.split("\n\n")
    output = [
        *ids(models, "qwen2_5", first),
        break_id,
        break_id,
        *ids(models, "qwen2_5", f"{last}<|im_end|>"),
    ]
    request = ask(RULES, QUESTION)
    _, second = linted(
        "qwen2_5",
        answered(request, assistant(text), ids=output),
        ask(RULES, QUESTION, assistant(text), NEXT),
    )
    broken = broke(second, MissCause.RETOKENISED)
    prompt = len(ChatRenderer(models["qwen2_5"]).render_body(request["messages"], []).token_ids)
    assert broken.position == prompt + len(ids(models, "qwen2_5", first))
    assert broken.stored_ids[:2] == (break_id, break_id)
    assert broken.sent_ids[0] == double
    assert (
        rf"'\n' ({break_id}) + '\n' ({break_id}), and it was sent as '\n\n' ({double})"
        in second.miss.finding.detail
    )
    assert broken.message_index == 2


# --- the engine -------------------------------------------------------------------------------------------


def test_a_prompt_below_one_large_block_is_not_broken(linted: Lint) -> None:
    for request in linted("qwen2_5", *[ask(RULES, QUESTION)] * 2, block_size=528):
        assert request.miss.tokens == {MissCause.BELOW_ONE_BLOCK: request.miss.prompt_tokens}
        assert request.miss.lost_tokens == 0
        assert request.miss.finding is not None
        assert "Nothing is broken" in request.miss.finding.advice


def test_prompt_logprobs_disable_reads_of_the_cache_and_not_writes(linted: Lint) -> None:
    asked = [ask(RULES, QUESTION), ask(RULES, QUESTION, prompt_logprobs=1), ask(RULES, QUESTION)]
    _, second, third = linted("qwen2_5", *asked)
    assert second.miss.cached_tokens == 0
    assert second.miss.tokens[MissCause.READS_SKIPPED] == third.miss.cached_tokens > 0


def test_requests_under_different_salts_share_nothing(linted: Lint) -> None:
    first, second = linted(
        "qwen2_5", ask(RULES, QUESTION, cache_salt="a"), ask(RULES, QUESTION, cache_salt="b")
    )
    assert second.miss.cached_tokens == 0
    assert second.miss.tokens[MissCause.OTHER_SALT] > 0
    assert second.against == first.line


def test_the_same_seed_on_a_warm_server_is_told_as_a_repeat(tmp_path: Path, models: dict[str, Path]) -> None:
    report = report_on(
        tmp_path, models["qwen2_5"], ask(RULES, QUESTION, seed=1), ask(RULES, QUESTION, seed=1)
    )
    (note,) = [note for note in report.notes if note.notice is Notice.REPEATED_PROMPTS]
    assert "line 2 repeats line 1" in note.sentence
    assert "cache_salt" in note.sentence


# --- what the server reports ------------------------------------------------------------------------------


def flags(request: LintedRequest) -> dict[UsageProblem, str]:
    return {flag.problem: flag.sentence for flag in request.flags}


def reported(linted: Lint, model: str, *pairs: tuple[Body, dict[str, Any]]) -> list[dict[UsageProblem, str]]:
    """The flags of requests with these reports; `extra` tokens are added to the right prompt count."""
    plain = [request for request, _ in pairs]
    sizes = [item.miss.prompt_tokens for item in linted(model, *plain)]
    records = [
        answered(request, ANSWER, **{**told, "prompt": size + told.pop("extra", 0)})
        for (request, told), size in zip(pairs, sizes, strict=True)
    ]
    return [flags(item) for item in linted(model, *records, server_usage=True)]


def test_cached_tokens_as_predicted_raise_no_flag(linted: Lint) -> None:
    request = ask(RULES, QUESTION)
    size = linted("qwen2_5", request)[0].miss.prompt_tokens
    told = [{"cached": 0}, {"cached": (size - 1) // 8 * 8}]
    assert reported(linted, "qwen2_5", *((request, each) for each in told)) == [{}, {}]


def test_all_but_one_token_cached_is_impossible_in_whole_blocks(linted: Lint) -> None:
    request = ask(RULES, QUESTION)
    size = linted("qwen2_5", request)[0].miss.prompt_tokens
    assert (size - 1) % 8, "the case needs a prompt that is no multiple of the block and one token"
    _, second = reported(linted, "qwen2_5", (request, {"cached": 0}), (request, {"cached": size - 1}))
    assert "impossible with blocks of 8" in second[UsageProblem.NOT_WHOLE_BLOCKS]
    assert "disaggregated" in second[UsageProblem.NOT_WHOLE_BLOCKS]


def test_null_details_though_hits_are_high_name_the_servers_flag(linted: Lint) -> None:
    request = ask(RULES, QUESTION)
    _, second = reported(linted, "qwen2_5", (request, {"cached": None}), (request, {"cached": None}))
    assert "--enable-prompt-tokens-details" in second[UsageProblem.DETAILS_NULL]
    assert "(0 tokens predicted)" not in second[UsageProblem.DETAILS_NULL]


def test_preemption_that_counts_as_hits_is_more_than_was_stored(linted: Lint) -> None:
    other = ask(system("Another assistant altogether."), user("Which ships are due in the morning?"))
    _, second = reported(linted, "qwen2_5", (ask(RULES, QUESTION), {"cached": 0}), (other, {"cached": 24}))
    assert "preempted" in second[UsageProblem.MORE_THAN_STORED]


def test_a_first_request_that_hits_met_a_warm_server(linted: Lint) -> None:
    (first,) = reported(linted, "qwen2_5", (ask(RULES, QUESTION), {"cached": 24}))
    assert "canary" in first[UsageProblem.WARM_START]


def test_usage_lost_because_the_client_stopped_at_finish_reason(linted: Lint) -> None:
    asked = ask(RULES, QUESTION, stream=True, stream_options={"include_usage": True})
    not_asked = ask(RULES, QUESTION, stream=True)
    chunk = [{"choices": [{"delta": {"content": "Four."}, "finish_reason": "stop"}]}]
    first, second = linted(
        "qwen2_5",
        {"request": asked, "response": chunk},
        {"request": not_asked, "response": chunk},
        server_usage=True,
    )
    assert "read the stream up to [DONE]" in flags(first)[UsageProblem.USAGE_MISSING]
    assert "include_usage" in flags(second)[UsageProblem.USAGE_MISSING]


def test_another_count_than_the_servers_names_both(linted: Lint) -> None:
    (first,) = reported(linted, "qwen2_5", (ask(RULES, QUESTION), {"cached": 0, "extra": 5}))
    assert list(first) == [UsageProblem.COUNT_DIFFERS]


def report_on(tmp_path: Path, model: Path, *records: Body) -> Any:
    path = write_log(tmp_path / "report.jsonl", records)
    options = LintOptions(block_size=8)
    with LogReader(path) as reader:
        linter = Linter(reader, model, options)
        builder = ReportBuilder(path.name, options, template_clock=linter.reads_clock)
        for item in linter.requests():
            builder.add(item)
        return builder.report(served_name=linter.served_name, kept=linter.kept())
