"""`ContextPolicy`: the good choices a deployment can make; sabotage is a `Fault`, not a policy."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from serving.assembler.compaction.policy import CompactionPolicy
from serving.assembler.kinds import Layer
from serving.assembler.masking import MaskingLimits
from serving.assembler.record import Record, canonical_json, digest
from serving.assembler.status_bar import BarPolicy
from serving.assembler.utility import UtilityWeights


class SuffixPosition(StrEnum):
    """Where the dynamic suffix goes."""

    END = "end"
    """After the trajectory, so behind the task while that is the last turn; all history stays cached."""
    BEFORE_TASK = "before_task"
    """Directly before the task while it is the last turn, else at the end; the question is read last, and the
    first tool call after it pays for the move."""


class Carrier(StrEnum):
    """What carries text that is not a turn of the conversation (see `layout.carry`)."""

    USER = "user"
    """A user message of its own. With Qwen3's template it hides the reasoning of the running tool loop."""
    TAIL_OF_LAST_TOOL_RESULT = "tail_of_last_tool_result"
    """The end of the last message when that is a tool result or a user turn, else a user message."""
    TOOL_RESPONSE = "tool_response"
    """A user message wrapped as `<tool_response>`, which Qwen3's template takes for part of the loop."""


class ToolOrder(StrEnum):
    """The fixed order of tool contracts; neither depends on the order in which they were handed in."""

    NAME = "name"
    DECLARED = "declared"
    """By the items' `order`, then by name."""


class ReasoningEcho(StrEnum):
    """Which reasoning texts are sent back."""

    ALL = "all"
    CURRENT_LOOP = "current_loop"
    """Those since the last user turn: what most reasoning templates print anyway."""


class PackerName(StrEnum):
    """How optional items are chosen (see `packers.py`)."""

    GREEDY = "greedy"
    KNAPSACK = "knapsack"


class ContextPolicy(Record):
    """One way of building contexts; equal policies have equal hashes, whatever file they came from."""

    name: str = "default"
    version: str = "1"
    layer_order: tuple[Layer, ...] = tuple(Layer)
    """A permutation of all layers; orders the system message and, separately, the dynamic suffix."""
    suffix_position: SuffixPosition = SuffixPosition.END
    carrier: Carrier = Carrier.TAIL_OF_LAST_TOOL_RESULT
    tool_order: ToolOrder = ToolOrder.NAME
    reasoning: ReasoningEcho = ReasoningEcho.ALL
    masking: MaskingLimits | None = None
    """When tool results make room for a short text; None: never."""
    compaction: CompactionPolicy | None = None
    """When a part of the log makes room for a summary, and how; None: never."""
    status_bar: BarPolicy | None = None
    """What the bar says that the assembler builds for every packet; None: it builds none."""
    look_for_secrets: bool = True
    """Whether the manifest says which items hold what looks like a secret or personal data."""
    packer: PackerName = PackerName.GREEDY
    weights: UtilityWeights = Field(default_factory=UtilityWeights)

    def _problem(self) -> str | None:
        if sorted(self.layer_order) != sorted(Layer):
            names = ", ".join(layer.value for layer in Layer)
            return f"layer_order must name each of {names} exactly once, but it names {len(self.layer_order)}"
        return None

    def digest(self) -> str:
        """SHA-256 over all choices; goes into the manifest."""
        return digest(canonical_json(self.model_dump(mode="json")))
