"""The context assembler: typed items in, one packet out, and a manifest that accounts for every token.

    from serving.assembler import AssemblyRequest, ContextPolicy, assemble

Pure and deterministic: no clock, no network, no model call, no randomness.
"""

from __future__ import annotations

from serving.assembler.ablation import AblateBy, Ablation, ablations
from serving.assembler.assemble import assemble
from serving.assembler.counter import FixedCounter
from serving.assembler.diff import Aspect, Change, ManifestDiff, Section, diff
from serving.assembler.draft import Draft, DraftMessage, DraftTool, LocalSpan, TextPart
from serving.assembler.faults import Fault, Invariant
from serving.assembler.first_difference import FirstByte, FirstToken
from serving.assembler.items import Classification, Condition, ContextItem, Scope
from serving.assembler.kinds import Kind, Layer, Region, Trust
from serving.assembler.manifest import ContextManifest, DropReason
from serving.assembler.messages import FRAMING, item_of, leaves, part_id
from serving.assembler.packet import HandOff, HandOffReason, Message, Packet, PacketSpan, ToolCall, ToolSpec
from serving.assembler.payloads import (
    AssistantTurn,
    Authority,
    Evidence,
    Example,
    Instruction,
    Memory,
    Note,
    Notification,
    OpenQuestion,
    OutputContract,
    SkillBody,
    SkillEntry,
    StatusBar,
    TaskStateText,
    ToolContract,
    ToolResult,
    ToolStep,
    Turn,
    UserTurn,
)
from serving.assembler.policy import (
    Carrier,
    ContextPolicy,
    PackerName,
    ReasoningEcho,
    SuffixPosition,
    ToolOrder,
)
from serving.assembler.renderer import CoarseReason, Rendered, Renderer, RendererIdentity, TokenSpan
from serving.assembler.replay import MissingSnapshot, Replay, ReplayReason, Snapshot, Verdict, replay
from serving.assembler.request import (
    AssemblyRequest,
    Decision,
    MissingReason,
    MissingSource,
    RequestContext,
    Retrieval,
    RunLimits,
    TaskState,
)
from serving.assembler.trajectory import Trajectory, history_items, tool_items, turns_from_messages
from serving.assembler.utility import Terms, UtilityWeights

__all__ = [
    "FRAMING",
    "AblateBy",
    "Ablation",
    "Aspect",
    "AssemblyRequest",
    "AssistantTurn",
    "Authority",
    "Carrier",
    "Change",
    "Classification",
    "CoarseReason",
    "Condition",
    "ContextItem",
    "ContextManifest",
    "ContextPolicy",
    "Decision",
    "Draft",
    "DraftMessage",
    "DraftTool",
    "DropReason",
    "Evidence",
    "Example",
    "Fault",
    "FirstByte",
    "FirstToken",
    "FixedCounter",
    "HandOff",
    "HandOffReason",
    "Instruction",
    "Invariant",
    "Kind",
    "Layer",
    "LocalSpan",
    "ManifestDiff",
    "Memory",
    "Message",
    "MissingReason",
    "MissingSnapshot",
    "MissingSource",
    "Note",
    "Notification",
    "OpenQuestion",
    "OutputContract",
    "PackerName",
    "Packet",
    "PacketSpan",
    "ReasoningEcho",
    "Region",
    "Rendered",
    "Renderer",
    "RendererIdentity",
    "Replay",
    "ReplayReason",
    "RequestContext",
    "Retrieval",
    "RunLimits",
    "Scope",
    "Section",
    "SkillBody",
    "SkillEntry",
    "Snapshot",
    "StatusBar",
    "SuffixPosition",
    "TaskState",
    "TaskStateText",
    "Terms",
    "TextPart",
    "TokenSpan",
    "ToolCall",
    "ToolContract",
    "ToolOrder",
    "ToolResult",
    "ToolSpec",
    "ToolStep",
    "Trajectory",
    "Trust",
    "Turn",
    "UserTurn",
    "UtilityWeights",
    "Verdict",
    "ablations",
    "assemble",
    "diff",
    "history_items",
    "item_of",
    "leaves",
    "part_id",
    "replay",
    "tool_items",
    "turns_from_messages",
]
