"""Which tools a stage of a task offers: reading first, narrow work then, at last the one approved command."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from serving.assembler.kinds import Stage
from serving.assembler.payloads import Authority, ToolContract

__all__ = ["STAGES_OF_AUTHORITY", "Stage", "stage_allows"]

STAGES_OF_AUTHORITY: Final = MappingProxyType(
    {
        Authority.READ: frozenset({Stage.DISCOVERY, Stage.ANALYSIS}),
        Authority.WRITE: frozenset({Stage.ANALYSIS}),
        Authority.CONSEQUENTIAL: frozenset({Stage.ACTION}),
    }
)
"""The stages of a contract that names none."""


def stage_allows(contract: ToolContract, stage: Stage, command: str | None) -> bool:
    """Whether `stage` offers the tool; `command` is the name of the approved command, None without one.

    At `action` a tool that does more than read is offered only when it is that command; a contract's own
    `stages` narrow and widen everything but this. Ask again before executing: a contract that was loaded
    into the history stays readable there at every stage.
    """
    if stage not in (STAGES_OF_AUTHORITY[contract.authority] if contract.stages is None else contract.stages):
        return False
    free = stage is not Stage.ACTION or contract.authority is Authority.READ
    return free or contract.spec.name == command
