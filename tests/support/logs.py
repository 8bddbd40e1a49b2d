"""Logs of chat requests, written as briefly as they are read, and a linter over them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from serving.explain.lint import LintedRequest, Linter, LintOptions, LogReader, SkippedLine

Body = dict[str, Any]


def system(text: str) -> Body:
    return {"role": "system", "content": text}


def user(text: str) -> Body:
    return {"role": "user", "content": text}


def assistant(text: str | None = None, *, calls: Iterable[Body] = (), thought: str | None = None) -> Body:
    message: Body = {"role": "assistant", "content": text}
    if thought is not None:
        message["reasoning_content"] = thought
    if made := list(calls):
        message["tool_calls"] = made
    return message


def call(name: str, arguments: str, call_id: str = "call_1") -> Body:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(text: str, call_id: str = "call_1") -> Body:
    return {"role": "tool", "content": text, "tool_call_id": call_id}


def tool(name: str, description: str = "Looks something up.", **properties: Any) -> Body:
    schema = {"type": "object", "properties": properties or {"path": {"type": "string"}}}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


def ask(*messages: Body, **fields: Any) -> Body:
    """A request body."""
    return {"model": "m", "messages": list(messages), **fields}


def answered(request: Body, reply: Body | None = None, **response: Any) -> Body:
    """A request with its response; `ids`, `prompt_ids`, `prompt`, `cached`, `completion` are what it tells."""
    choice: Body = {"index": 0, "message": reply, "finish_reason": response.get("finish", "stop")}
    if "ids" in response:
        choice["token_ids"] = list(response["ids"])
    body: Body = {"choices": [choice]}
    if "prompt_ids" in response:
        body["prompt_token_ids"] = list(response["prompt_ids"])
    if "prompt" in response:
        cached = response.get("cached")
        body["usage"] = {
            "prompt_tokens": response["prompt"],
            "completion_tokens": response.get("completion"),
            "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
        }
    return {"request": request, "response": body}


def write_log(path: Path, records: Iterable[Body]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def lint_all(path: Path, model: Path, **options: Any) -> list[LintedRequest | SkippedLine]:
    """Every verdict of a log file."""
    with LogReader(path) as reader:
        return list(Linter(reader, model, LintOptions(**options)).requests())


def lint(path: Path, model: Path, records: Iterable[Body], **options: Any) -> list[LintedRequest]:
    """Every request of a log that must hold nothing but requests of one model."""
    found = lint_all(write_log(path, records), model, **options)
    assert all(isinstance(item, LintedRequest) for item in found), found
    return [item for item in found if isinstance(item, LintedRequest)]
