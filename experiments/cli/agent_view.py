"""What a task looks like while it is done, and what is told of it at the end."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from pydantic import JsonValue
from rich.console import Console

from experiments.agent.drift import drifts
from experiments.agent.events import (
    AgentEvent,
    Answer,
    CallFinished,
    CallStarted,
    GaveUp,
    ToolFinished,
    ToolStarted,
)
from experiments.cli.chat_view import ChatView
from experiments.cli.untrusted import untrusted
from serving.assembler import Packet
from serving.call import MeasuredCall

_BAR: Final = re.compile(r"<agent_status>(.*?)</agent_status>", re.DOTALL)


class AgentView:
    """Prints a conversation's events, and before each model call the status bar that it reads."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._chat = ChatView(console)

    def show(self, event: AgentEvent) -> None:
        """Print one event."""
        if isinstance(event, CallStarted):
            self._console.print(untrusted(f"\nstep {event.iteration + 1}\n", "bold"))
            if bar := bar_of(event.packet):
                self._console.print(untrusted(f"{bar}\n", "green"))
        self._chat.show(event)

    def end_line(self) -> None:
        """Begin a new line if a stream stopped within one."""
        self._chat.end_line()


def bar_of(packet: Packet) -> str:
    """The text of the newest status bar in a packet; empty without one."""
    for message in reversed(packet.messages):
        if found := _BAR.findall(message.content or ""):
            return str(found[-1]).strip()
    return ""


class Report:
    """Adds up one task from its events."""

    def __init__(self) -> None:
        self._steps: list[dict[str, JsonValue]] = []
        self._measured: list[MeasuredCall] = []
        self._early: set[str] = set()
        self._end: dict[str, JsonValue] = {"answer": None, "reason": "interrupted", "sentence": None}
        self._ran: Counter[str] = Counter()

    def take(self, event: AgentEvent) -> None:
        """Note one event."""
        match event:
            case CallFinished(iteration=iteration, call=call, said=said):
                if isinstance(call, MeasuredCall):
                    self._measured.append(call)
                usage, exchange = call.exchange.usage, call.exchange
                prompt = None if usage is None else usage.prompt_tokens
                cached = None if usage is None else usage.cached_tokens
                self._steps.append(
                    {
                        "number": iteration,
                        "form": said.form.value,
                        "prompt_tokens": prompt,
                        "cached_tokens": cached,
                        "new_tokens": None if prompt is None or cached is None else prompt - cached,
                        "predicted_cached_tokens": (
                            call.prediction.cached_tokens if isinstance(call, MeasuredCall) else None
                        ),
                        "output_tokens": exchange.output_tokens,
                        "ttft_s": exchange.ttft_s,
                        "latency_s": exchange.latency_s,
                        "calls": [],
                    }
                )
            case ToolStarted(call=call, early=early):
                self._ran["early"] += early
                if early:
                    self._early.add(call.id)
            case ToolFinished(call=call, outcome=outcome, refusal=refusal, attempts=attempts):
                self._ran["refused" if refusal is not None else "run"] += 1
                calls = self._steps[-1]["calls"]
                if isinstance(calls, list):
                    calls.append(
                        {
                            "name": call.name,
                            "arguments": call.arguments,
                            "ok": outcome.ok,
                            "refusal": None if refusal is None else refusal.value,
                            "early": call.id in self._early,
                            "attempts": attempts,
                        }
                    )
            case Answer(text=text):
                self._end = {"answer": text, "reason": None, "sentence": None}
            case GaveUp(reason=reason, sentence=sentence):
                self._end = {"answer": None, "reason": reason.value, "sentence": sentence}

    def document(self) -> dict[str, JsonValue]:
        """Everything as JSON."""
        drifted = self._drifts()
        return {
            **self._end,
            "steps": list(self._steps),
            "drifts": None if drifted is None else {**dict(sorted(drifted.items()))},
        }

    def line(self) -> str:
        """Everything in one line."""
        prompt, cached = self._total("prompt_tokens"), self._total("cached_tokens")
        share = "unknown" if not prompt or cached is None else f"{cached / prompt:.0%}"
        drifted = self._drifts()
        causes = (
            "" if drifted is None else ", ".join(f"{count} × {cause}" for cause, count in drifted.items())
        )
        return (
            f"{len(self._steps)} model calls · {self._ran['run']} tools run, {self._ran['early']} of them early, "
            f"{self._ran['refused']} refused · prompt {_known(prompt)}, cached {_known(cached)} ({share}) · "
            f"drift: {'unknown' if drifted is None else causes or 'none'}"
        )

    def _drifts(self) -> dict[str, int] | None:
        """Requests that do not extend the one before, by cause; None where the ids are not known."""
        if len(self._measured) < len(self._steps):
            return None
        return {cause.value: count for cause, count in drifts(self._measured).items()}

    def _total(self, name: str) -> int | None:
        counts = [step[name] for step in self._steps]
        return sum(count for count in counts if isinstance(count, int)) if None not in counts else None


def _known(count: int | None) -> str:
    return "unknown" if count is None else f"{count:,}"
