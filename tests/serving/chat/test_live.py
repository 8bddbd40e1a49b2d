"""Our ids against those of a running server: every conversation, to the last token."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

from serving.assembler.renderer import Rendered
from serving.chat import ChatRenderer
from serving.errors import UsageError

Body = dict[str, Any]
Generator = Callable[[random.Random], tuple[list[Body], list[Body]]]


class LiveServer(Protocol):
    """What the shared fixture gives."""

    base_url: str
    folder: Path


pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def http(live_server: LiveServer) -> Any:
    with httpx.Client(base_url=live_server.base_url.rstrip("/").removesuffix("/v1"), timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def model(http: httpx.Client) -> str:
    name: str = http.get("/v1/models").json()["data"][0]["id"]
    return name


def request_body(model: str, messages: list[Body], tools: list[Body], **more: Any) -> Body:
    body: Body = {"model": model, "messages": messages, "max_tokens": 1, "temperature": 0, **more}
    return {**body, "tools": tools} if tools else body


def rendered_or_refused(renderer: ChatRenderer, messages: list[Body], tools: list[Body]) -> Rendered | None:
    try:
        return renderer.render_body(messages, tools)
    except UsageError:
        return None


@pytest.mark.parametrize("kwargs", [{}, {"enable_thinking": False}, {"enable_thinking": None}])
def test_ids_equal_those_the_server_renders(
    live_server: LiveServer,
    http: httpx.Client,
    model: str,
    wild_conversation: Generator,
    conversation: Generator,
    kwargs: Body,
) -> None:
    renderer = ChatRenderer(live_server.folder, template_kwargs=kwargs)
    compared = 0
    for seed, write in itertools.product(range(100), (wild_conversation, conversation)):
        messages, tools = write(random.Random(seed))
        ours = rendered_or_refused(renderer, messages, tools)
        body = request_body(model, messages, tools, chat_template_kwargs=kwargs, return_token_offsets=True)
        answer = http.post("/v1/chat/completions/render", json=body)
        if ours is None:
            assert answer.status_code == 400, (seed, answer.text)
            continue
        if len(ours.token_ids) > 4000:
            continue
        assert answer.status_code == 200, (seed, answer.text)
        assert answer.json()["token_ids"] == list(ours.token_ids), seed
        compared += 1
    assert compared >= 100


def test_ids_equal_the_prompt_ids_of_real_calls_on_both_surfaces(
    live_server: LiveServer, http: httpx.Client, model: str, wild_conversation: Generator
) -> None:
    renderer = ChatRenderer(live_server.folder)
    for seed in range(1000, 1020):
        messages, tools = wild_conversation(random.Random(seed))
        ours = rendered_or_refused(renderer, messages, tools)
        if ours is None or len(ours.token_ids) > 2000:
            continue
        ids = list(ours.token_ids)
        chat = http.post(
            "/v1/chat/completions", json=request_body(model, messages, tools, return_token_ids=True)
        )
        assert chat.json()["prompt_token_ids"] == ids, seed
        token_in = {
            "model": model,
            "prompt": ids,
            "max_tokens": 1,
            "temperature": 0,
            "return_token_ids": True,
        }
        completion = http.post("/v1/completions", json=token_in).json()
        assert completion["choices"][0]["prompt_token_ids"] == ids, seed


def test_token_starts_equal_the_servers_offsets(
    live_server: LiveServer, http: httpx.Client, model: str, conversation: Generator
) -> None:
    renderer = ChatRenderer(live_server.folder)
    for seed in range(2000, 2020):
        messages, tools = conversation(random.Random(seed))
        ours = rendered_or_refused(renderer, messages, tools)
        if ours is None:
            continue
        body = request_body(model, messages, tools, return_token_offsets=True)
        answer = http.post("/v1/chat/completions/render", json=body).json()
        offsets = answer.get("token_offsets") or answer.get("prompt_token_offsets")
        assert offsets is not None, sorted(answer)
        assert [start for start, _ in offsets] == list(ours.token_offsets), seed
