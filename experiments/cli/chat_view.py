"""What a conversation looks like in a terminal: streams, tool calls, tokens, and the numbers after each call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import Final

from rich.console import Console
from rich.text import Text

from experiments.agent.callform import CallForm
from experiments.agent.events import (
    AgentEvent,
    Answer,
    CallFinished,
    CallStarted,
    FinishedCall,
    GaveUp,
    ModelEvent,
    ToolFinished,
    ToolStarted,
)
from experiments.cli.untrusted import untrusted
from serving.assembler import ToolCall, ToolSpec
from serving.call import MeasuredCall
from serving.chat import ShownToken
from serving.client import ReasoningDelta, StreamEvent, TextDelta, ToolCallFragment
from serving.text import visible

REASONING = "dim italic"
TOOL_CALL = "cyan"
TOOL_RESULT = "dim"
SPECIAL = "bold magenta"
TOKEN_ID = "dim cyan"  # noqa: S105 (no password)
RESULT_LINES_SHOWN = 12

FORM_WARNINGS: Final = MappingProxyType(
    {
        CallForm.FENCED: "the tool call came between code fences and not in the template's form",
        CallForm.BARE: "the tool call came as bare JSON and not in the template's form",
        CallForm.MALFORMED: "the tool call cannot be read",
    }
)


class ChatView:
    """Prints the events of turns as they come; holds nothing but where the cursor is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._style: str | None = None
        """Of the stream being printed; None between streams."""

    def show(self, event: AgentEvent) -> None:
        """Print one event."""
        match event:
            case ModelEvent(event=arrived):
                self._stream(arrived)
            case CallFinished(call=call, said=said):
                self.end_line()
                if said.form in FORM_WARNINGS:
                    self.warn(FORM_WARNINGS[said.form])
                self._console.print(Text(call_line(call), style="dim"))
                for warning in warnings(call):
                    self.warn(warning)
            case ToolStarted(call=call, form=form, received_id=received_id, early=early):
                self.end_line()
                if form is CallForm.NATIVE and received_id != call.id:
                    self.warn(
                        f"the call's id {visible(str(received_id))} is missing or taken; it goes on as {call.id}"
                    )
                self._call(call, " while the model still writes" if early else "")
            case ToolFinished(call=call, outcome=outcome, refusal=refusal):
                if refusal is not None:
                    self._call(call, f" refused: {refusal.value}")
                self._print(f"{_first_lines(outcome.text)}\n", TOOL_RESULT if outcome.ok else "dim red")
            case GaveUp(sentence=sentence):
                self.warn(sentence)
            case CallStarted() | Answer():
                pass

    def end_line(self) -> None:
        """Begin a new line if a stream stopped within one."""
        if self._style is not None:
            self._console.print()
            self._style = None

    def warn(self, sentence: str) -> None:
        """A line that must not be overlooked."""
        self.end_line()
        self._console.print(untrusted(f"! {sentence}", "yellow"))

    def tokens(self, shown: Sequence[ShownToken], *, start: int = 0) -> None:
        """Token ids with their text from index `start` on: added tokens in colour."""
        head = f"{len(shown)} prompt tokens"
        if start:
            head += f", the first {start} as before (/tokens shows them)"
        self._console.print(Text(head, style="dim"))
        line = Text(end="")
        for token in shown[start:]:
            line.append(f"{token.token_id}", TOKEN_ID)
            # As Python writes it: quoted, so that ids and text cannot be taken for one another.
            line.append(repr(token.piece), SPECIAL if token.special else "")
            line.append(" ")
            if token.piece.endswith("\n"):
                line.append("\n")
        self._console.print(line)

    def tools(self, specs: Sequence[ToolSpec]) -> None:
        """The tools that the model is offered."""
        for spec in specs:
            properties = spec.parameters.get("properties")
            names = ", ".join(properties) if isinstance(properties, dict) else ""
            self._console.print(Text(f"{spec.name}({names})  {spec.description}", style="dim"))

    def _call(self, call: ToolCall, remark: str) -> None:
        self._print("⚙ ", TOOL_CALL)
        self._print(f"{call.name}({call.arguments}){remark}\n", TOOL_CALL)

    def _stream(self, arrived: StreamEvent) -> None:
        match arrived:
            case ReasoningDelta(text=text):
                self._piece(text, REASONING)
            case TextDelta(text=text):
                self._piece(text, "")
            case ToolCallFragment(name=name, arguments=arguments):
                if name is not None:
                    self.end_line()
                self._piece(f"→ {name} {arguments}" if name is not None else arguments, TOOL_CALL)

    def _piece(self, text: str, style: str) -> None:
        if self._style is not None and self._style != style:
            self.end_line()
        if text:
            self._print(text, style)
            self._style = style

    def _print(self, text: str, style: str) -> None:
        self._console.print(untrusted(text, style), end="")


def call_line(call: FinishedCall) -> str:
    """TTFT, tokens a second, and where the prompt tokens went, by the server's count and by prediction."""
    exchange = call.exchange
    usage = exchange.usage
    prompt = None if usage is None else usage.prompt_tokens
    cached = None if usage is None else usage.cached_tokens
    ttft, tpot = exchange.ttft_s, exchange.tpot_s
    predicted = str(call.prediction.cached_tokens) if isinstance(call, MeasuredCall) else "off"
    parts = [
        f"TTFT {_or_unknown(None if ttft is None else f'{ttft * 1e3:,.0f} ms')}",
        f"{_or_unknown(None if not tpot else f'{1 / tpot:,.1f}')} tok/s",
        f"prompt {_or_unknown(prompt)}",
        f"cached {_or_unknown(cached)} (server)",
        f"predicted {predicted}",
        f"new {_or_unknown(None if prompt is None or cached is None else prompt - cached)}",
        f"output {_or_unknown(exchange.output_tokens)}",
    ]
    if exchange.finish_reason == "length":
        parts.append("cut at --max-tokens")
    return "— " + " · ".join(parts)


def warnings(call: FinishedCall) -> Iterator[str]:
    """Both sides of every number that should be equal and is not; nothing for what the server does not tell."""
    if not isinstance(call, MeasuredCall):
        return
    if call.ids_agree is False:
        here, there = call.rendered.token_ids, call.exchange.prompt_token_ids or ()
        at = next(index for index, (a, b) in enumerate(zip_longest(here, there)) if a != b)
        yield (
            f"the prompt differs from token {at} on: {len(here)} ids rendered here, {list(here[at : at + 6])} "
            f"there; {len(there)} read by the server, {list(there[at : at + 6])} there"
        )
    if call.prediction_agrees is False:
        yield (
            f"cached tokens differ: {call.prediction.cached_tokens} predicted, {call.cached_tokens} reported by "
            "the server (another client, an eviction, or caching switched off)"
        )


def _first_lines(text: str) -> str:
    lines = text.split("\n")
    if len(lines) <= RESULT_LINES_SHOWN:
        return text
    return "\n".join([*lines[:RESULT_LINES_SHOWN], f"… {len(lines) - RESULT_LINES_SHOWN} more lines"])


def _or_unknown(value: str | int | None) -> str:
    return "unknown" if value is None else str(value)
