"""Tool arguments parsed and written again, with other spaces and another order of keys."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from experiments.faults.base import FaultContext, each_in_trajectory
from serving.assembler import Draft, DraftMessage, Invariant, ToolCall


@dataclass(frozen=True, slots=True)
class ArgumentsReserialised:
    """What a client does whose maps have no fixed order: the first call with two arguments is where it shows.

    vLLM parses the arguments before its template prints them, so there the spaces change nothing and the order
    of keys does. Arguments that are no JSON object stay as they are.
    """

    seed: int
    call: int
    name: str = "arguments-reserialised"
    breaks: frozenset[Invariant] = frozenset({Invariant.ARGUMENTS_VERBATIM, Invariant.APPEND_ONLY})

    @classmethod
    def build(cls, context: FaultContext) -> ArgumentsReserialised:
        """The fault for one call; the order of keys follows from seed, call and tool call alone."""
        return cls(context.seed, context.call)

    def apply(self, draft: Draft) -> Draft:
        """The draft with every tool call's arguments written again."""
        return each_in_trajectory(draft, self._rewritten)

    def _rewritten(self, message: DraftMessage) -> DraftMessage:
        calls = tuple(
            call.model_copy(update={"arguments": self._again(call)}) for call in message.message.tool_calls
        )
        changed = message.message.model_copy(update={"tool_calls": calls})
        return DraftMessage(changed, message.spans, message.region)

    def _again(self, call: ToolCall) -> str:
        try:
            parsed = json.loads(call.arguments)
        except json.JSONDecodeError:
            return call.arguments
        if not isinstance(parsed, dict):
            return call.arguments
        pairs = list(parsed.items())
        random.Random(f"{self.seed}/{self.call}/{call.id}").shuffle(pairs)  # noqa: S311 - an order, not a secret
        return json.dumps(dict(pairs), ensure_ascii=False, separators=(",", ":"))
