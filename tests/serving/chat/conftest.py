"""Fixtures of the chat room: a tiny Qwen-like tokenizer, real templates, and a generator of conversations."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_model import TEMPLATE_NAMES, write_tiny_folder


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model folder a template, all with the same small byte-level tokenizer."""
    return {name: write_tiny_folder(tmp_path_factory.mktemp(name), name) for name in TEMPLATE_NAMES}


Body = dict[str, Any]
Generator = Callable[[random.Random], tuple[list[Body], list[Body]]]


@pytest.fixture(scope="session")
def conversation() -> Generator:
    """Messages and tools in the API's form, within what `Message` and `ToolSpec` can carry."""
    return lambda rng: _Writer(rng, wild=False).write()


@pytest.fixture(scope="session")
def wild_conversation() -> Generator:
    """The same with what only raw bodies have: text parts, unknown keys, tools without fields, bad JSON."""
    return lambda rng: _Writer(rng, wild=True).write()


_FRAGMENTS = (
    "word",
    "two words",
    " lead",
    "trail ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    "   ",
    "line\nbreak",
    '"quoted"',
    "back\\slash",
    "<|im_end|>",
    "<|im_start|>system\n",
    "<think>",
    "</think>",
    "<think>\nwhy\n</think>\n\n",
    "<tool_call>",
    "<tool_response>",
    "</tool_response>",
    "{}",
    '{"name": "f"}',
    "é",
    "e\u0301",
    "日本語",
    "مرحبا",
    "👩‍👩‍👧",
    "\ue000",
    "\u00a0",
    "\u200b",
    "ﬁ",
    "Å",
    "\u2028",
    "</tools>",
    "{{ x }}",
    "{% if %}",
    "12345",
    "&<>'",
    "\x00",
    "\x7f",
    "ß",
    "\ufeff",
)


class _Writer:
    def __init__(self, rng: random.Random, *, wild: bool) -> None:
        self.rng = rng
        self.wild = wild
        self.calls = 0

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def text(self, most: int = 6) -> str:
        if self.chance(0.06):
            return f"<tool_response>\n{self.rng.choice(_FRAGMENTS)}\n</tool_response>"
        return "".join(self.rng.choice(_FRAGMENTS) for _ in range(self.rng.randint(0, most)))

    def value(self, depth: int = 0) -> Any:
        kind = self.rng.randrange(8 if depth < 2 else 5)
        if kind == 0:
            return self.rng.choice([0, -1, 1.5, 1e22, 10**20, True, False, None])
        if kind < 5:
            return self.text(3)
        if kind == 5:
            return [self.value(depth + 1) for _ in range(self.rng.randint(0, 3))]
        return {self.key(): self.value(depth + 1) for _ in range(self.rng.randint(0, 3))}

    def key(self) -> str:
        return self.rng.choice(["z", "a", "städt", "query text", 'k"q', "city", "日", "n0"])

    def arguments(self) -> str:
        if self.wild and self.chance(0.15):
            return self.rng.choice(["", "{", "[]", "42", "null", '"x"', "{'a': 1}", "not json"])
        body = {self.key(): self.value() for _ in range(self.rng.randint(0, 3))}
        style = self.rng.randrange(4)
        if style == 0:
            return json.dumps(body)
        if style == 1:
            return json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        if style == 2:
            return json.dumps(body, ensure_ascii=False, indent=2)
        return " " + json.dumps(body, ensure_ascii=False, separators=(" , ", " : ")) + "\n"

    def tool(self, number: int) -> Body:
        schema: Body = {
            "type": "object",
            "properties": {
                self.key(): {"type": "string", "description": self.text(3), "enum": ["a", "b"]},
                self.key(): {"default": self.value(1)},
            },
        }
        if self.chance(0.5):
            schema["required"] = [self.key()]
        function: Body = {"name": f"tool_{number}", "description": self.text(4), "parameters": schema}
        tool: Body = {"type": "function", "function": function}
        if self.wild:
            for absent in ("description", "parameters"):
                if self.chance(0.25):
                    del function[absent]
            if self.chance(0.3):
                function["strict"] = self.rng.choice([True, False, None])
            if self.chance(0.3):
                function["x-unknown"] = self.text(2)
                tool["x-unknown"] = 1
            if self.chance(0.5):
                tool["function"] = dict(sorted(function.items(), key=lambda pair: -len(pair[0])))
        return tool

    def content(self, role: str) -> Any:
        if self.wild and self.chance(0.2):
            parts: list[Any] = [{"type": "text", "text": self.text(3)} for _ in range(self.rng.randint(0, 3))]
            if self.chance(0.3) and role == "user":
                parts.append({"type": "text", "text": "cached", "cache_control": {"type": "ephemeral"}})
            return parts
        return self.text()

    def assistant(self, with_tools: bool) -> list[Body]:
        message: Body = {"role": "assistant", "content": self.content("assistant")}
        if self.chance(0.4):
            field = "reasoning_content" if self.wild and self.chance(0.5) else "reasoning"
            message[field] = self.text(4)
        if not with_tools or self.chance(0.4):
            if self.wild and self.chance(0.2):
                message["tool_calls"] = []
            return [message]
        if self.chance(0.4):
            message["content"] = None
        count = self.rng.randint(1, 3)
        ids = [f"call_{self.calls + i}" for i in range(count)]
        self.calls += count
        message["tool_calls"] = [self.call(i) for i in ids]
        self.rng.shuffle(ids)
        return [message, *({"role": "tool", "content": self.content("tool"), "tool_call_id": i} for i in ids)]

    def call(self, call_id: str) -> Body:
        name = f"tool_{self.rng.randrange(3)}"
        call: Body = {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": self.arguments()},
        }
        if self.wild and self.chance(0.3):
            call = {"index": 0, **dict(reversed(call.items()))}
        return call

    def write(self) -> tuple[list[Body], list[Body]]:
        tools = [self.tool(n) for n in range(self.rng.choice([0, 0, 1, 3]))]
        messages: list[Body] = []
        if self.chance(0.6):
            text = self.content("system")
            if self.wild and self.chance(0.1):
                text = "x-anthropic-billing-header: cch=1;\n" + self.text()
            messages.append({"role": "system", "content": text})
        if self.chance(0.2):
            messages.append({"role": "developer", "content": self.content("developer")})
        for _ in range(self.rng.randint(1, 4)):
            user: Body = {"role": "user", "content": self.content("user")}
            if self.chance(0.1):
                user["name"] = "someone"
            messages.append(user)
            for _ in range(self.rng.randint(0, 2)):
                messages.extend(self.assistant(bool(tools)))
            if self.chance(0.1):
                messages.append({"role": "system", "content": self.content("system")})
        if self.chance(0.5):
            messages.append({"role": "user", "content": self.text()})
        return messages, tools
