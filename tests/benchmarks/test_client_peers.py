from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from benchmarks.client_peers import Job, as_vllm_reads_it, ours, vllm_bench
from tests.support.stub import Stub, running_stub

STREAMS = 3
REQUESTS = 11


@pytest.fixture(scope="module")
def stub() -> Iterator[Stub]:
    with running_stub() as server:
        yield server


def job(stub: Stub, *, seed: int = 0, salt: str = "s") -> Job:
    return Job(stub.base_url, "one-write", STREAMS, REQUESTS, 4, "", prompt_tokens=20, seed=seed, salt=salt)


def as_sent(body: dict) -> dict:
    """A body with a text as one part written as the text, and both names of the number of tokens as one."""
    plain = {name: value for name, value in body.items() if name != "max_completion_tokens"}
    plain["max_tokens"] = body.get("max_completion_tokens", body.get("max_tokens"))
    plain["messages"] = [
        {**message, "content": _text(message["content"])} for message in plain.pop("messages")
    ]
    return plain


def _text(content: object) -> object:
    if isinstance(content, list):
        assert len(content) == 1 and content[0].keys() == {"type", "text"}
        return content[0]["text"]
    return content


def texts(bodies: list[dict]) -> list[str]:
    return [body["messages"][0]["content"] for body in bodies]


def sent_by_ours(stub: Stub, made: Job) -> list[dict]:
    stub.all_logs()
    told = ours(made)
    assert len(told.calls) == REQUESTS
    assert (told.prompt_tokens, told.output_tokens) == (5 * REQUESTS, 4 * REQUESTS)
    return [log["body"] for log in stub.all_logs()]


def in_order(found: list[str], asked: list[str]) -> bool:
    """Whether no request came before one that stands a whole round of streams ahead of it."""
    places = [asked.index(text) for text in found]
    return all(abs(place - number) < STREAMS for number, place in enumerate(places))


def test_ours_sends_the_texts_of_the_file_that_vllms_bench_is_given(stub: Stub) -> None:
    made = job(stub)
    lines, extra = as_vllm_reads_it(made)
    asked = [line["content"][0]["text"] for line in lines]
    sent = [as_sent(body) for body in sent_by_ours(stub, made)]
    assert len(set(asked)) == REQUESTS
    assert sorted(texts(sent)) == sorted(asked)
    assert in_order(texts(sent), asked)
    theirs = {"model": "one-write", "stream": True, "stream_options": {"include_usage": True}, **extra}
    for body in sent:
        assert {**body, "messages": []} == as_sent({**theirs, "messages": []})


def test_another_salt_or_seed_meets_no_block_of_the_first(stub: Stub) -> None:
    first = as_vllm_reads_it(job(stub))
    salted = as_vllm_reads_it(job(stub, salt="other"))
    assert salted[0] == first[0]
    assert (first[1]["cache_salt"], salted[1]["cache_salt"]) == ("s", "other")
    shared = {json.dumps(line) for line in first[0]} & {
        json.dumps(line) for line in as_vllm_reads_it(job(stub, seed=4))[0]
    }
    assert not shared


@pytest.mark.full  # the bench imports torch: half a minute on two cores
def test_vllms_bench_and_ours_send_the_same_requests_in_the_same_order(stub: Stub) -> None:
    made = job(stub)
    mine = [as_sent(body) for body in sent_by_ours(stub, made)]
    told = vllm_bench(made)
    theirs = [as_sent(log["body"]) for log in stub.all_logs()]
    asked = [line["content"][0]["text"] for line in as_vllm_reads_it(made)[0]]
    assert (told.prompt_tokens, told.output_tokens) == (5 * REQUESTS, 4 * REQUESTS)
    assert sorted(mine, key=json.dumps) == sorted(theirs, key=json.dumps)
    assert in_order(texts(theirs), asked) and in_order(texts(mine), asked)
