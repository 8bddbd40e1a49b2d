"""Tools made for a test: a contract and a function each; every run is kept, from whatever thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from experiments.agent.tools import GroupName, Toolbox, ToolOutcome, Workspace, World, build_toolbox
from serving.assembler import Authority, ToolContract, ToolSpec

Run = Callable[[str, threading.Event], ToolOutcome]

ANY_OBJECT = {"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": False}


def contract(
    name: str, authority: Authority = Authority.READ, *, idempotent: bool = True, **more: object
) -> ToolContract:
    spec = ToolSpec(name=name, description=f"Does {name}.", parameters=ANY_OBJECT)
    return ToolContract(spec=spec, authority=authority, idempotent=idempotent, **more)


def fine(arguments: str, cancel: threading.Event) -> ToolOutcome:
    return ToolOutcome(f"did {arguments}", ok=True)


@dataclass
class MadeTools:
    contracts: tuple[ToolContract, ...]
    runs: dict[str, Run] = field(default_factory=dict)
    """By tool name; a tool without one says what it did."""
    ran: list[tuple[str, str]] = field(default_factory=list)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(one.spec for one in self.contracts)

    def run(self, name: str, arguments: str, *, cancel: threading.Event | None = None) -> ToolOutcome:
        self.ran.append((name, arguments))  # appending is atomic
        return self.runs.get(name, fine)(arguments, cancel or threading.Event())


def file_toolbox(root: Path) -> Toolbox:
    """The file tools over a folder, as `ctxlab chat` has them."""
    return build_toolbox([GroupName.FILES], World(workspace=Workspace(root)))
