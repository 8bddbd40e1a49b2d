"""The demonstration: one tool-calling conversation over the README, then the same bytes again, then with a clock.

Every request is rendered here first, so that its token ids and its cached tokens are known before it is sent;
a server that says otherwise stops the demonstration with both sides shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import metadata
from pathlib import Path
from uuid import uuid4

from pydantic import JsonValue

from serving.chat import ChatRenderer
from serving.client import ChatRequest, Client, Exchange
from serving.errors import LabError
from serving.models import ModelFolder
from serving.prefix import Prediction, Predictor

JsonObject = dict[str, JsonValue]

SYSTEM = (
    "You answer questions about the project ctxlab from its README. "
    "Read a section with the tool before you answer, and answer in one sentence."
)
QUESTIONS = (
    "Which two commands should a newcomer type? Read the section first.",
    "And what does the second of them do?",
    "Thank you. Say in five words what this project is.",
)
ANSWER_TOKENS = 40
SECTION_CHARACTERS = 900


@dataclass(frozen=True)
class DemoCall:
    """One request of the demonstration with both sides of its count."""

    group: str
    label: str
    exchange: Exchange
    prediction: Prediction
    pieces: tuple[tuple[int, str], ...]
    """Each prompt token's id and text."""


@dataclass
class Demo:
    """A served model, its renderer and its predictor; `run` holds the conversation three times."""

    client: Client
    model: ModelFolder
    block_size: int
    show: Callable[[DemoCall], None]

    def __post_init__(self) -> None:
        self._renderer = ChatRenderer(self.model.path)
        self._predictor = Predictor(self.block_size)
        self._salt = f"demo-{uuid4().hex}"
        self._readme = readme_sections()
        self._tools: list[JsonObject] = [_section_tool(list(self._readme))]

    def run(self) -> list[DemoCall]:
        """Hold the conversation, send it again, and send it with a clock at its head."""
        requests: list[tuple[str, list[JsonObject]]] = []
        calls: list[DemoCall] = []
        for label, messages in self._conversation(calls):
            requests.append((label, messages))
        for label, messages in requests:
            calls.append(self._send("the same again", label, messages, max_tokens=1))
        for minute, (label, messages) in enumerate(requests):
            clock: JsonObject = {"role": "system", "content": f"It is 09:{minute:02d}:00. {SYSTEM}"}
            calls.append(self._send("clock at the head", label, [clock, *messages[1:]], max_tokens=1))
        return calls

    def _conversation(self, calls: list[DemoCall]) -> list[tuple[str, list[JsonObject]]]:
        group = "append-only"
        sent = []
        messages: list[JsonObject] = [{"role": "system", "content": SYSTEM}]
        for turn, question in enumerate(QUESTIONS, 1):
            messages = [*messages, {"role": "user", "content": question}]
            if turn == 1:
                label = f"turn {turn}, tool call"
                sent.append((label, messages))
                call = self._send(group, label, messages, max_tokens=120, tool_choice="required")
                calls.append(call)
                messages = [*messages, *self._run_tools(call.exchange)]
            label = f"turn {turn}, answer"
            sent.append((label, messages))
            call = self._send(group, label, messages, max_tokens=ANSWER_TOKENS)
            calls.append(call)
            messages = [*messages, {"role": "assistant", "content": call.exchange.text}]
        return sent

    def _run_tools(self, exchange: Exchange) -> list[JsonObject]:
        if not exchange.tool_calls:
            raise LabError(
                f"{self.model.name} was required to call a tool and answered {exchange.text[:80]!r}: "
                "use a model whose template has tools."
            )
        tool_calls: list[JsonValue] = []
        results: list[JsonObject] = []
        for call in exchange.tool_calls:
            function: JsonObject = {"name": call.name, "arguments": call.arguments}
            tool_calls.append({"id": call.id, "type": "function", "function": function})
            results.append({"role": "tool", "tool_call_id": call.id, "content": self._read(call.arguments)})
        return [{"role": "assistant", "content": "", "tool_calls": tool_calls}, *results]

    def _read(self, arguments: str) -> str:
        heading = json.loads(arguments).get("heading")
        found = self._readme.get(str(heading))
        return found or f"No section {heading!r}; the sections are: {', '.join(self._readme)}."

    def _send(
        self,
        group: str,
        label: str,
        messages: list[JsonObject],
        *,
        max_tokens: int,
        tool_choice: str = "auto",
    ) -> DemoCall:
        rendered = self._renderer.render_body(messages, self._tools)
        prediction = self._predictor.predict_next(rendered.token_ids, self._salt)
        request = ChatRequest.model_validate(
            {
                "model": self.model.name,
                "messages": messages,
                "tools": self._tools,
                "tool_choice": tool_choice,
                "max_tokens": max_tokens,
                "cache_salt": self._salt,
            }
        )
        exchange = self.client.chat(request).raise_for_error()
        self._predictor.record(exchange.output_token_ids or ())
        _check(f"{group}, {label}", rendered.token_ids, prediction, exchange)
        shown = self._renderer.show(rendered)
        call = DemoCall(group, label, exchange, prediction, tuple((t.token_id, t.piece) for t in shown))
        self.show(call)
        return call


def _check(where: str, ids: tuple[int, ...], prediction: Prediction, exchange: Exchange) -> None:
    served = exchange.prompt_token_ids
    if served != ids:
        at = next((i for i, (a, b) in enumerate(zip(ids, served or (), strict=False)) if a != b), 0)
        raise LabError(
            f"{where}: the ids rendered here ({len(ids)}) and the server's ({len(served or ())}) differ at token "
            f"{at}: {ids[at : at + 8]} here, {(served or ())[at : at + 8]} there."
        )
    reported = None if exchange.usage is None else exchange.usage.cached_tokens
    if reported != prediction.cached_tokens:
        raise LabError(
            f"{where}: {prediction.cached_tokens} cached tokens were predicted and the server reports "
            f"{'none at all' if reported is None else reported}."
        )


def readme_sections() -> dict[str, str]:
    """The project's README by section heading, each cut to a size that a small model reads in seconds."""
    file = Path(__file__).parent.parent / "README.md"
    text = (
        file.read_text(encoding="utf-8")
        if file.is_file()
        else str(metadata("ctxlab").json.get("description", ""))
    )
    parts = re.split(r"^## +(.+)$", text, flags=re.MULTILINE)
    return {
        heading.strip(): body.strip()[:SECTION_CHARACTERS]
        for heading, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def _section_tool(headings: list[str]) -> JsonObject:
    heading: JsonObject = {"type": "string", "enum": list(headings), "description": "The section's heading."}
    parameters: JsonObject = {
        "type": "object",
        "properties": {"heading": heading},
        "required": ["heading"],
    }
    function: JsonObject = {
        "name": "read_section",
        "description": "Read one section of the project's README.",
        "parameters": parameters,
    }
    return {"type": "function", "function": function}
