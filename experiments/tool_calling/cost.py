"""The study `tool-calling-cost`: how long the turns of `tool-calling` wait, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from experiments.agent.collected import CollectedTurn
from experiments.framework import Analysis, SaltScope, Size, TrialOutcome, TrialRecord
from experiments.framework.served_model import ServedModel
from experiments.tool_calling.cost_tables import analyse_cost
from experiments.tool_calling.measures import times
from experiments.tool_calling.study import ToolCallingStudy
from experiments.workloads.tool_prompts import PromptClass, ToolPrompt


class ToolCallingCostStudy(ToolCallingStudy):
    """The same prompts under the same arms, each with a salt of its own and alone on the server."""

    name = "tool-calling-cost"
    title = "What a turn with tools costs"
    question = (
        "The first call of a turn reads the tools, later ones reuse them: how long does each wait for its first token, "
        "and how fast does the model write?"
    )
    sizes: tuple[Size, ...] = (
        Size(name="quick", tasks=len(PromptClass), seeds=1),
        Size(name="reference", tasks=len(PromptClass), seeds=5),
    )
    salt_scope = SaltScope.ATTEMPT
    concurrency = 1
    predictable: ClassVar[bool] = True

    def outcome(self, prompt: ToolPrompt, collected: CollectedTurn, target: ServedModel) -> TrialOutcome:
        """With the times, which mean something here."""
        made = super().outcome(prompt, collected, target)
        return made.model_copy(update={"measures": {**made.measures, **times(collected)}})

    def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
        """Waits and speed by arm; every sentence is computed."""
        return analyse_cost(self.arms, records)
