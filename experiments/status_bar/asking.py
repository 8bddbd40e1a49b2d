"""One scenario of the phone limit under an arm: the request of a question, with its bar where the arm wants it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from experiments.status_bar.arms import BarPlace
from experiments.workloads import PhoneBar, PhoneLimit
from experiments.workloads.phone_bars import Wording, bar_text
from experiments.workloads.phone_limit import PHONE
from serving.assembler import (
    AssemblyRequest,
    Carrier,
    ContextItem,
    ContextPolicy,
    Instruction,
    ToolStep,
)
from serving.assembler.break_even import BarMode
from serving.assembler.masking import CountTokens
from serving.assembler.status_bar import Bar, appended

OPEN, CLOSE = "<agent_status>\n", "\n</agent_status>"
"""Around a bar that is written into the system prompt; elsewhere the assembler adds them."""


@dataclass(frozen=True)
class Treatment:
    """What an arm does to a request."""

    bar: PhoneBar
    wording: Wording
    place: BarPlace
    mode: BarMode
    policy: ContextPolicy
    rebuild: bool

    @classmethod
    def of(cls, factors: Mapping[str, JsonValue]) -> Treatment:
        """Read it from an arm's factors."""
        return cls(
            bar=PhoneBar(str(factors["harness.bar"])),
            wording=Wording(str(factors["harness.bar_wording"])),
            place=BarPlace(str(factors["harness.bar_place"])),
            mode=BarMode(str(factors["policy.bar_mode"])),
            policy=ContextPolicy(carrier=Carrier(str(factors["policy.carrier"]))),
            rebuild=factors["harness.rebuild"] is True,
        )

    def request(
        self,
        scenario: PhoneLimit,
        count: CountTokens,
        *,
        window: int,
        max_output: int,
        run_id: str,
        surface: str,
    ) -> AssemblyRequest:
        """The request of the scenario's question; `count` measures a filler in tokens."""
        if self.rebuild:
            scenario = PhoneLimit.model_validate_json(scenario.model_dump_json())
        text = self._text(scenario, count)
        request = scenario.request(
            window=window,
            max_output=max_output,
            extra=() if text is None else self._candidates(text),
            run_id=run_id,
            surface=surface,
        )
        if text is not None and self.place is BarPlace.BEFORE_QUESTION:
            log, asking = request.history[: -scenario.asked_turns], request.history[-scenario.asked_turns :]
            history = (*self._with_bars(log, scenario, count), *asking)
            request = request.model_copy(update={"history": history})
        if self.rebuild:
            request = request.model_copy(update={"tools": request.tools[::-1]})
        return request

    def _text(self, scenario: PhoneLimit, count: CountTokens, made: int | None = None) -> str | None:
        return bar_text(scenario, self.bar, count, made=made, wording=self.wording)

    def _candidates(self, text: str) -> tuple[ContextItem, ...]:
        """The bar as an item outside the log, where it stands there."""
        match self.place:
            case BarPlace.BEFORE_QUESTION:
                return ()
            case BarPlace.AFTER_QUESTION:
                return (Bar(text=text, answers=()).item(),)
            case BarPlace.SYSTEM_PROMPT:
                return (ContextItem(id="status-bar", payload=Instruction(text=f"{OPEN}{text}{CLOSE}")),)

    def _with_bars(
        self, log: tuple[ContextItem, ...], scenario: PhoneLimit, count: CountTokens
    ) -> tuple[ContextItem, ...]:
        """The log with a bar behind its last step; where copies stay, behind every step."""
        marked: tuple[ContextItem, ...] = ()
        made = 0
        for item in log:
            marked = (*marked, item)
            if isinstance(item.payload, ToolStep):
                made += sum(call.name == PHONE for call in item.payload.calls)
                text = self._text(scenario, count, made)
                if text is not None and (item is log[-1] or self.mode is BarMode.APPEND):
                    marked = appended(marked, Bar(text=text, answers=())).history
        return marked
