"""The sides of `benchmarks.packing`: one class a library, each as its own documentation has it used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import astromesh_context as astromesh
from astromesh_context.calibrate import Calibrator
from astromesh_context.order import order_items
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, trim_messages

from benchmarks.packing_candidates import REQUIRED, Candidate, Outcome, Trap
from serving.assembler import (
    AssemblyRequest,
    ContextItem,
    ContextPolicy,
    Evidence,
    FixedCounter,
    HandOff,
    Instruction,
    Kind,
    Memory,
    RequestContext,
    Scope,
    UserTurn,
    assemble,
)

BUDGET: Final = 10_000
"""About a tenth of what the candidates have together."""
TOO_SMALL: Final = 600
"""Less than what is required has."""

RULE, RULE_TOKENS = "You answer support questions about a payments API from the evidence given.", 40
QUESTION, QUESTION_TOKENS = "Why do all our calls answer 401 since this morning?", 20
NOW: Final = datetime(2026, 10, 2, 9, 30, tzinfo=UTC)


class Side(Protocol):
    """One way to do the work; `run` is what is timed."""

    name: str

    def build_items(self) -> object:
        """The candidates in this side's own types."""

    def run(self) -> object:
        """Choose and lay out."""

    def outcome(self) -> Outcome:
        """What `run` gives, read afterwards."""

    def too_small(self) -> str:
        """What happens when the required candidates alone do not fit, in words."""


class CtxlabSide:
    """`assemble` as an application calls it: gates, utility, greedy packing, layout, manifest."""

    name = "ctxlab"

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates
        self._items = self.build_items()
        rule = ContextItem(id="rule", payload=Instruction(text=RULE), tokens=RULE_TOKENS)
        question = ContextItem(id="question", payload=UserTurn(text=QUESTION), tokens=QUESTION_TOKENS)
        self._request = AssemblyRequest(
            context=RequestContext(tenant="acme", actor="maria", purpose="support", now=NOW),
            candidates=(rule, *self._items),
            history=(question,),
            window=BUDGET + 500,
            max_output=500,
        )
        # The notes on superseded sources, which the assembler writes itself, are counted by their characters.
        self._counter = FixedCounter.of((rule, question, *self._items))

    def build_items(self) -> tuple[ContextItem, ...]:
        return tuple(map(_ctxlab_item, self._candidates))

    def run(self) -> object:
        return assemble(self._request, ContextPolicy(), self._counter)

    def outcome(self) -> Outcome:
        manifest = assemble(self._request, ContextPolicy(), self._counter).manifest
        kept = {item.id for item in manifest.selected} & {one.id for one in self._candidates}
        reasons = {item.id: item.reason.value for item in manifest.dropped}
        notes = sum(item.tokens for item in manifest.selected if item.kind is Kind.NOTE)
        return Outcome(frozenset(kept), reasons, notes)

    def too_small(self) -> str:
        request = self._request.model_copy(update={"window": TOO_SMALL + 500})
        made = assemble(request, ContextPolicy(), self._counter)
        return f"HandOff, {made.shortfall} short" if isinstance(made, HandOff) else "a packet"


class AstromeshSide:
    """`ContextEngine.build` with its default policy, its trace and its messages."""

    name = "astromesh-context"

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates
        self._items = self.build_items()
        self._rule = astromesh.ContextItem(
            id="rule", content=RULE, source="rules", kind="instruction", stability="stable",
            tokens=RULE_TOKENS, pinned=True,
        )  # fmt: skip

    def build_items(self) -> list[astromesh.ContextItem]:
        return list(map(_astromesh_item, self._candidates))

    def run(self) -> object:
        return self._window(BUDGET).to_messages()

    def outcome(self) -> Outcome:
        trace = self._window(BUDGET).trace
        kept = {entry.item_id for entry in trace.entries if entry.included} - {"rule"}
        reasons = {entry.item_id: entry.reason or "" for entry in trace.entries if not entry.included}
        return Outcome(frozenset(kept), reasons)

    def too_small(self) -> str:
        try:
            self._window(TOO_SMALL)
        except astromesh.BudgetExceededError as error:
            return f"{type(error).__name__}"
        return "a window"

    def _window(self, budget: int) -> astromesh.Window:
        async def candidates(query: str, context: astromesh.BuildContext) -> list[astromesh.ContextItem]:
            return self._items

        async def rules(query: str, context: astromesh.BuildContext) -> list[astromesh.ContextItem]:
            return [self._rule]

        engine = astromesh.ContextEngine(
            [
                astromesh.CallableSource(rules, name="rules"),
                astromesh.CallableSource(candidates, name="search"),
            ],
            # The question is no candidate there and is not counted.
            budget=budget - QUESTION_TOKENS,
        )
        return asyncio.run(engine.build(QUESTION))


class AstromeshStages(AstromeshSide):
    """The same without the comparison of texts and without a trace: calibrate, select, order, render."""

    name = "… its stages without dedupe"

    def run(self) -> object:
        scored = Calibrator().calibrate([self._rule, *self._items])
        budget = astromesh.Budget(BUDGET - QUESTION_TOKENS)
        selection = astromesh.ScoredKnapsack().select(scored, budget)
        items = order_items(selection.included, ["rules", "search"])
        return astromesh.Window(QUESTION, items, 0, BUDGET, astromesh.Trace([], []), "").to_messages()


class LangChainSide:
    """`trim_messages` with `strategy="last"` and the system message kept."""

    name = "trim_messages"

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates
        self._sizes = {"rule": RULE_TOKENS, "question": QUESTION_TOKENS}
        self._sizes |= {one.id: one.tokens for one in candidates}
        self._messages = [
            SystemMessage(RULE, id="rule"),
            *self.build_items(),
            HumanMessage(QUESTION, id="question"),
        ]

    def build_items(self) -> list[BaseMessage]:
        return [HumanMessage(one.text, id=one.id) for one in sorted(self._candidates, key=_rising)]

    def run(self) -> object:
        return self._trimmed(BUDGET)

    def outcome(self) -> Outcome:
        return Outcome(frozenset(message.id or "" for message in self._trimmed(BUDGET)[1:-1]))

    def too_small(self) -> str:
        kept = {message.id for message in self._trimmed(TOO_SMALL)}
        lost = sum(one.trap is Trap.REQUIRED and one.id not in kept for one in self._candidates)
        return f"{lost} of {REQUIRED} cut silently"

    def _trimmed(self, budget: int) -> list[BaseMessage]:
        return trim_messages(
            self._messages,
            max_tokens=budget,
            token_counter=self._count,
            strategy="last",
            include_system=True,
        )

    def _count(self, messages: list[BaseMessage]) -> int:
        sizes = self._sizes
        return sum(sizes[message.id or ""] for message in messages)


def _ctxlab_item(one: Candidate) -> ContextItem:
    payload = (
        Memory(
            text=one.text, subject="maria", purpose="support", source="system_record",
            expires_at=NOW - timedelta(days=1),
        )
        if one.trap is Trap.EXPIRED
        else Evidence(text=one.text)
    )  # fmt: skip
    return ContextItem(
        id=one.id,
        payload=payload,
        scope=Scope(tenant="globex" if one.trap is Trap.OTHER_TENANT else "acme"),
        tokens=one.tokens,
        terms=one.terms,
        required=one.trap is Trap.REQUIRED,
        supersedes=(one.supersedes,) if one.supersedes else (),
    )


def _astromesh_item(one: Candidate) -> astromesh.ContextItem:
    return astromesh.ContextItem(
        id=one.id,
        content=one.text,
        source="search",
        kind="memory" if one.trap is Trap.EXPIRED else "knowledge",
        stability="volatile",
        score=one.worth,
        tokens=one.tokens,
        signals=astromesh.Signals(deprecated=one.trap is Trap.SUPERSEDED),
        pinned=one.trap is Trap.REQUIRED,
    )


def _rising(one: Candidate) -> tuple[bool, float, str]:
    return (one.trap is Trap.REQUIRED, one.worth, one.id)
