from __future__ import annotations

import pytest

from serving.client import CompletionRequest
from serving.errors import UsageError
from tests.support.asking import ask


def test_absent_fields_are_absent_from_the_body_and_what_is_ours_is_never_sent():
    body = ask("m", rendered_tokens=12, measured=False).body()
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "temperature": 0.0,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }


def test_every_option_lands_in_the_body():
    body = ask(
        "m",
        tools=({"type": "function"},),
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=5,
        seed=3,
        stop=("a",),
        cache_salt="s",
        chat_template_kwargs={"enable_thinking": False},
        extra={"top_p": 0.9},
    ).body()
    assert body["tools"] == [{"type": "function"}]
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert (body["tool_choice"], body["max_tokens"], body["seed"], body["stop"]) == ("required", 5, 3, ["a"])
    assert body["parallel_tool_calls"] is False
    assert (body["cache_salt"], body["top_p"]) == ("s", 0.9)


def test_token_ids_go_in_as_they_are():
    assert CompletionRequest(model="m", prompt=(3, 1, 2)).body()["prompt"] == [3, 1, 2]


@pytest.mark.parametrize("name", ["stream", "model", "temperature"])
def test_an_extra_field_that_hides_a_known_one_is_refused(name):
    with pytest.raises(UsageError, match=name):
        ask("m", extra={name: 1}).body()
