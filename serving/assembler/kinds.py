"""The vocabulary of context: kinds, layers, trust, and what a kind means for the layout by default."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class Kind(StrEnum):
    """What an item is; each kind has one payload type in `payloads.py`."""

    INSTRUCTION = "instruction"
    OUTPUT_CONTRACT = "output_contract"
    TOOL_CONTRACT = "tool_contract"
    SKILL_ENTRY = "skill_entry"
    SKILL_BODY = "skill_body"
    EXAMPLE = "example"
    TASK_STATE = "task_state"
    OPEN_QUESTION = "open_question"
    EVIDENCE = "evidence"
    MEMORY = "memory"
    NOTE = "note"
    USER_TURN = "user_turn"
    ASSISTANT_TURN = "assistant_turn"
    TOOL_STEP = "tool_step"
    SUMMARY = "summary"
    NOTIFICATION = "notification"
    STATUS_BAR = "status_bar"


class Layer(StrEnum):
    """The seven layers of a context, in their default order."""

    POLICY = "policy"
    TASK = "task"
    CAPABILITY = "capability"
    OUTPUT = "output"
    KNOWLEDGE = "knowledge"
    INTERACTION = "interaction"
    WORKING_STATE = "working_state"


class Trust(StrEnum):
    """Whose words an item holds; only `TRUSTED` items may instruct."""

    TRUSTED = "trusted"
    """Written by whoever runs the application."""
    USER = "user"
    """Said by the authenticated user."""
    UNTRUSTED = "untrusted"
    """Anything else: documents, tool output, a model's own text. Data, never an instruction."""


class Stage(StrEnum):
    """How far a task is; each stage offers the tools that it needs and no others (see `stages.py`)."""

    DISCOVERY = "discovery"
    """Nothing is chosen yet: read and search."""
    ANALYSIS = "analysis"
    """The resource is chosen: narrow work on it."""
    ACTION = "action"
    """Before a consequential action: the one command that was named and approved."""


class Region(StrEnum):
    """The part of the packet a kind lives in; everything before `TRAJECTORY` is the static head."""

    HEAD = "head"
    TOOLS = "tools"
    EXAMPLES = "examples"
    TRAJECTORY = "trajectory"
    SUFFIX = "suffix"


class KindRule(NamedTuple):
    """What a kind implies unless the item says otherwise."""

    region: Region
    layer: Layer
    trust: Trust
    required: bool
    """Never dropped for lack of room; see `spec` section 3 for the list."""


KIND_RULES: Final = MappingProxyType(
    {
        Kind.INSTRUCTION: KindRule(Region.HEAD, Layer.POLICY, Trust.TRUSTED, True),
        Kind.OUTPUT_CONTRACT: KindRule(Region.HEAD, Layer.OUTPUT, Trust.TRUSTED, True),
        Kind.TOOL_CONTRACT: KindRule(Region.TOOLS, Layer.CAPABILITY, Trust.TRUSTED, True),
        Kind.SKILL_ENTRY: KindRule(Region.HEAD, Layer.CAPABILITY, Trust.TRUSTED, True),
        Kind.SKILL_BODY: KindRule(Region.TRAJECTORY, Layer.CAPABILITY, Trust.TRUSTED, True),
        Kind.EXAMPLE: KindRule(Region.EXAMPLES, Layer.TASK, Trust.TRUSTED, False),
        Kind.TASK_STATE: KindRule(Region.SUFFIX, Layer.WORKING_STATE, Trust.TRUSTED, True),
        Kind.OPEN_QUESTION: KindRule(Region.SUFFIX, Layer.WORKING_STATE, Trust.TRUSTED, True),
        Kind.EVIDENCE: KindRule(Region.SUFFIX, Layer.KNOWLEDGE, Trust.UNTRUSTED, False),
        Kind.MEMORY: KindRule(Region.SUFFIX, Layer.KNOWLEDGE, Trust.UNTRUSTED, False),
        Kind.NOTE: KindRule(Region.SUFFIX, Layer.KNOWLEDGE, Trust.TRUSTED, True),
        Kind.USER_TURN: KindRule(Region.TRAJECTORY, Layer.INTERACTION, Trust.USER, True),
        Kind.ASSISTANT_TURN: KindRule(Region.TRAJECTORY, Layer.INTERACTION, Trust.UNTRUSTED, True),
        Kind.TOOL_STEP: KindRule(Region.TRAJECTORY, Layer.INTERACTION, Trust.UNTRUSTED, True),
        Kind.SUMMARY: KindRule(Region.TRAJECTORY, Layer.INTERACTION, Trust.UNTRUSTED, True),
        Kind.NOTIFICATION: KindRule(Region.SUFFIX, Layer.WORKING_STATE, Trust.TRUSTED, True),
        Kind.STATUS_BAR: KindRule(Region.SUFFIX, Layer.WORKING_STATE, Trust.TRUSTED, True),
    }
)
"""One row a kind; read-only."""

MUST_BE_TRUSTED: Final = frozenset(
    {
        Kind.INSTRUCTION,
        Kind.OUTPUT_CONTRACT,
        Kind.TOOL_CONTRACT,
        Kind.SKILL_ENTRY,
        Kind.SKILL_BODY,
        Kind.STATUS_BAR,
    }
)
"""Kinds that instruct: text of outside origin never becomes one of them."""

MUST_NAME_TENANT: Final = frozenset({Kind.EVIDENCE, Kind.MEMORY})
"""Kinds that hold somebody's data: without a tenant they would be readable by all, so they are refused."""
