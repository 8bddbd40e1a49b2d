"""Why a call is not run: every rule that is checked before a tool sees the arguments, in a fixed order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from serving.assembler import Observation, TaskState, ToolCall, ToolContract, stage_allows

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_SHOWN = 80
"""Characters of a name that a model made up."""
_LIST_SHOWN = 400
"""Characters of a list of names: an observation stays far below its limit."""


class RefusalReason(StrEnum):
    """The error class of a call that was not run."""

    UNKNOWN_TOOL = "unknown_tool"
    NOT_LOADED = "not_loaded"
    """A deferred tool whose contract the model has not read; it is loaded by this call, and not run."""
    NOT_ALLOWED = "not_allowed"
    """The run allows other tools only."""
    NOT_IN_STAGE = "not_in_stage"
    """Offered once or loaded into the history, but not for this stage of the task."""
    NO_ATTEMPTS_LEFT = "no_attempts_left"
    MALFORMED_ARGUMENTS = "malformed_arguments"
    """No JSON object."""
    WRONG_ARGUMENTS = "wrong_arguments"
    """Against the tool's schema."""
    REPEATED_CALL = "repeated_call"
    NOT_APPROVED = "not_approved"
    CANCELLED = "cancelled"
    """The task's time ran out while the tool was waiting or running."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One call that is not run, for code (`reason`) and for the model (`sentence`)."""

    reason: RefusalReason
    sentence: str
    next_actions: tuple[str, ...] = ()

    def observation(self, tool: str, now: datetime) -> Observation:
        """What the model reads in place of a result."""
        return Observation(
            tool=tool[:_SHOWN] or "unnamed",
            status="refused",
            checked_at=now,
            verified={"problem": self.sentence},
            error_class=self.reason.value,
            next_actions=self.next_actions,
        )


@dataclass(frozen=True)
class Catalogue:
    """The tools of one moment of a run: what the model may call, and what it has not loaded yet."""

    callable: Mapping[str, ToolContract]
    """Offered from the start, or loaded since, by name."""
    deferred: frozenset[str] = frozenset()
    """Named in the head and not loaded."""
    _validators: Mapping[str, Draft202012Validator] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Its import takes a second and more: here, before the model is asked, and not for whoever runs no tool.
        from jsonschema import Draft202012Validator

        validators = {
            name: Draft202012Validator(contract.spec.parameters) for name, contract in self.callable.items()
        }
        object.__setattr__(self, "_validators", validators)

    def refusal(self, call: ToolCall, state: TaskState) -> Refusal | None:
        """The first rule that the call breaks, or None; approval is asked for later, by the exact call.

        Who may call what is checked before the arguments are looked at, so a refusal of a forbidden tool
        tells nothing about its schema.
        """
        contract = self.callable.get(call.name)
        if contract is None:
            return self._unknown(call.name)
        if state.allowed_tools is not None and call.name not in state.allowed_tools:
            return Refusal(RefusalReason.NOT_ALLOWED, f"This run does not allow {call.name}.")
        if state.stage is not None and not stage_allows(contract, state.stage, state.approved_command):
            return Refusal(
                RefusalReason.NOT_IN_STAGE, f"{call.name} is not offered at the stage {state.stage.value}."
            )
        if state.limits.attempts_left() == 0:
            return Refusal(
                RefusalReason.NO_ATTEMPTS_LEFT,
                f"All {state.limits.tool_attempts} tool calls of this run are used; answer from what is known.",
            )
        return self._wrong_arguments(call, contract)

    def _unknown(self, name: str) -> Refusal:
        if name in self.deferred:
            return Refusal(
                RefusalReason.NOT_LOADED,
                f"{name} was not loaded; its definition follows now. Read it, and call it again.",
                (name,),
            )
        known = _cut(", ".join(self.callable) or "none", _LIST_SHOWN)
        return Refusal(
            RefusalReason.UNKNOWN_TOOL, f"There is no tool {name[:_SHOWN]!r}; the tools are {known}."
        )

    def _wrong_arguments(self, call: ToolCall, contract: ToolContract) -> Refusal | None:
        read = read_arguments(call.arguments)
        takes = _signature(contract)
        if isinstance(read, str):
            sentence = f"Wrong arguments for {call.name}: {read}. It takes {takes}."
            return Refusal(RefusalReason.MALFORMED_ARGUMENTS, sentence, (call.name,))
        from jsonschema.exceptions import best_match

        problem = best_match(self._validators[call.name].iter_errors(read))
        if problem is None:
            return None
        where = f"{problem.json_path}: " if problem.absolute_path else ""
        return Refusal(
            RefusalReason.WRONG_ARGUMENTS,
            f"Wrong arguments for {call.name}: {where}{_cut(problem.message)}. It takes {takes}.",
            (call.name,),
        )


def read_arguments(arguments: str) -> dict[str, object] | str:
    """The object, or what is wrong with it; an empty text is no arguments, as several servers write it."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        return f"Invalid JSON ({_cut(str(error))})"
    return value if isinstance(value, dict) else f"a JSON object was expected, a {type(value).__name__} came"


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _signature(contract: ToolContract) -> str:
    properties = contract.spec.parameters.get("properties")
    required = contract.spec.parameters.get("required")
    if not isinstance(properties, dict) or not properties:
        return "no arguments"
    needed = required if isinstance(required, list) else []
    takes = ", ".join(
        f"{name}: {_type(schema)}{'' if name in needed else ' (optional)'}"
        for name, schema in properties.items()
    )
    return _cut(takes, _LIST_SHOWN)


def _type(schema: object) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return kind if isinstance(kind, str) else "any"


def _cut(text: str, limit: int = 200) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= limit else f"{text[:limit]}…"
