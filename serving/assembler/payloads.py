"""What an item holds, one type a kind; the `kind` field tells them apart when they are loaded from JSON."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from serving.assembler.kinds import Kind, Stage
from serving.assembler.messages import Message, ToolCall, ToolSpec
from serving.assembler.record import SORTED, Instant, Record

Text = Annotated[str, Field(min_length=1)]


def _outside_the_bar(text: str) -> str:
    if "agent_status" in text:
        raise ValueError("a status bar must not contain the name of its own tag, agent_status")
    return text


class Instruction(Record):
    """A rule or a role for the model, in the one system message."""

    kind: Literal[Kind.INSTRUCTION] = Kind.INSTRUCTION
    text: Text
    title: str | None = None


class OutputContract(Record):
    """The form that the answer must have."""

    kind: Literal[Kind.OUTPUT_CONTRACT] = Kind.OUTPUT_CONTRACT
    text: Text


class Authority(StrEnum):
    """What a tool can do to the world."""

    READ = "read"
    WRITE = "write"
    CONSEQUENTIAL = "consequential"


class ToolContract(Record):
    """A tool as the model sees it (`spec`) and as the application answers for it (the rest)."""

    kind: Literal[Kind.TOOL_CONTRACT] = Kind.TOOL_CONTRACT
    spec: ToolSpec
    authority: Authority = Authority.READ
    effect: str = ""
    preconditions: tuple[str, ...] = ()
    authorization_scope: str | None = None
    output_schema_sha256: str | None = None
    idempotent: bool = False
    boilerplate: bool = False
    """Its results are not worth keeping once they are no longer the latest; masking leaves them out."""
    failures: tuple[str, ...] = ()
    stages: Annotated[frozenset[Stage], SORTED] | None = None
    """The stages that offer the tool; None: those that its authority implies (`stages.py`)."""

    def _problem(self) -> str | None:
        if self.authority is Authority.CONSEQUENTIAL and (self.stages or set()) - {Stage.ACTION}:
            return (
                f"{self.spec.name} is consequential, so its stages may hold 'action' alone; lower the authority "
                "or the stages"
            )
        return None


class Loads(StrEnum):
    """What a line of the catalogue leads to."""

    SKILL = "skill"
    TOOL = "tool"
    """A tool whose contract is sent only when it is called for."""


class SkillEntry(Record):
    """One line of the catalogue: a name and the condition under which to load what it stands for."""

    kind: Literal[Kind.SKILL_ENTRY] = Kind.SKILL_ENTRY
    name: Text
    description: Text
    loads: Loads = Loads.SKILL


class SkillBody(Record):
    """A skill's text or one of its files, placed in the history where it was called for and never moved."""

    kind: Literal[Kind.SKILL_BODY] = Kind.SKILL_BODY
    name: Text
    text: Text
    file: Text | None = None
    """Which file of the skill `text` is; None: the body itself."""


class Example(Record):
    """A worked exchange, shown as messages before the trajectory; its tool calls are closed inside it."""

    kind: Literal[Kind.EXAMPLE] = Kind.EXAMPLE
    messages: tuple[Message, ...] = Field(min_length=1)

    def _problem(self) -> str | None:
        if any(message.role in ("system", "developer") for message in self.messages):
            return "an example holds user, assistant and tool messages, not a system message"
        return pairing_problem(self.messages)


class TaskStateText(Record):
    """Authoritative progress in words, written by code."""

    kind: Literal[Kind.TASK_STATE] = Kind.TASK_STATE
    text: Text


class OpenQuestion(Record):
    """Something unknown, or two sources that disagree; shown, never smoothed over."""

    kind: Literal[Kind.OPEN_QUESTION] = Kind.OPEN_QUESTION
    text: Text
    conflict_between: tuple[str, ...] = ()
    """Ids of the disagreeing items; empty for a plain unknown."""


class Evidence(Record):
    """A quoted span of a document or an observation, with what is needed to judge whether it applies."""

    kind: Literal[Kind.EVIDENCE] = Kind.EVIDENCE
    text: Text
    document: str | None = None
    """A stable document id."""
    location: str | None = None
    applicability: str | None = None
    """The condition under which the text holds; travels with the text in every form."""
    effective_date: Instant | None = None
    observed_at: Instant | None = None
    """When the fact was seen; says nothing of the time before."""
    valid_at: Instant | None = None
    retrieved_at: Instant | None = None
    """When it was loaded, which is not freshness; recorded, never shown as the time of the fact."""
    retrieval_score: float | None = None
    rerank_score: float | None = None


class Memory(Record):
    """A lasting statement about a subject."""

    kind: Literal[Kind.MEMORY] = Kind.MEMORY
    text: Text
    subject: Text
    purpose: Text
    source: str
    """`user_stated`, `system_record`: a fact; `model_inferred`: a hypothesis; any other loads nothing."""
    legal_basis: str | None = None
    confidence: float | None = Field(default=None, ge=0, le=1)
    created_at: Instant | None = None
    expires_at: Instant | None = None
    deletion_binding: str | None = None


class Note(Record):
    """A short remark of the assembler or of code, such as why a source is not shown."""

    kind: Literal[Kind.NOTE] = Kind.NOTE
    text: Text


class UserTurn(Record):
    """What the user said."""

    kind: Literal[Kind.USER_TURN] = Kind.USER_TURN
    text: str
    name: str | None = None


class AssistantTurn(Record):
    """What the model answered without calling a tool."""

    kind: Literal[Kind.ASSISTANT_TURN] = Kind.ASSISTANT_TURN
    text: str
    reasoning: str | None = None


class ToolResult(Record):
    """What one call returned, in the words that the model reads."""

    call_id: Text
    content: str
    failed: bool = False
    artifact_ref: str | None = None
    """Where the raw output is kept, when `content` is shorter than it."""


class ToolStep(Record):
    """One assistant message that calls tools, with the results: kept or left out together, never in parts.

    `results` may lack calls that have not returned; they stay open and are closed in the packet by a fixed
    sentence. A result without its call cannot be expressed.
    """

    kind: Literal[Kind.TOOL_STEP] = Kind.TOOL_STEP
    calls: tuple[ToolCall, ...] = Field(min_length=1)
    results: tuple[ToolResult, ...] = ()
    text: str = ""
    reasoning: str | None = None

    def _problem(self) -> str | None:
        calls = [call.id for call in self.calls]
        results = [result.call_id for result in self.results]
        for name, ids in (("call", calls), ("result for call", results)):
            if twice := _first_repeated(ids):
                return f"every {name} has its own id, but {twice} comes twice"
        called = set(calls)
        if orphans := [call_id for call_id in results if call_id not in called]:
            return f"every result answers a call of the same step, but {orphans[0]} was never called"
        return None

    @property
    def open_calls(self) -> tuple[str, ...]:
        """Ids of calls without a result, in call order."""
        returned = {result.call_id for result in self.results}
        return tuple(call.id for call in self.calls if call.id not in returned)


class Claim(Record):
    """One statement of a summary and the log entries that it was read from."""

    text: Text
    sources: tuple[Text, ...] = Field(min_length=1)
    """Item ids of the log, or parts of them (`part_id`); never the id of another summary."""
    section: str | None = None
    """The section of a checkpoint that it stands in."""


class Summary(Record):
    """What stands in the trajectory for items of the log; made by `serving/assembler/compaction/`."""

    kind: Literal[Kind.SUMMARY] = Kind.SUMMARY
    text: Text
    strategy: Text
    version: Text
    """Of the strategy's code and wording."""
    covers: tuple[Text, ...] = Field(min_length=1)
    """Ids of all items of the log that it stands for, in log order, also those of a summary it extends."""
    claims: tuple[Claim, ...] = ()
    """Every line of `text` with its sources, where the strategy asks for them."""
    unverified: tuple[str, ...] = ()
    """Identifiers and numbers of `text` that stand in no source; shown to the model as such."""

    @property
    def attributes(self) -> dict[str, str]:
        """What the fence says of it beside the text."""
        first, last, count = self.covers[0], self.covers[-1], len(self.covers)
        span = first if count == 1 else f"{first} to {last} ({count} items)"
        shown = {"of": span, "by": self.strategy}
        return {**shown, "unverified": ", ".join(self.unverified)} if self.unverified else shown


class Notification(Record):
    """One event of the harness (a file changed, a job finished, an approval came back)."""

    kind: Literal[Kind.NOTIFICATION] = Kind.NOTIFICATION
    text: Text
    event: str


class StatusBar(Record):
    """The agent's state in words, built by code and shown inside `<agent_status>`."""

    kind: Literal[Kind.STATUS_BAR] = Kind.STATUS_BAR
    text: Annotated[Text, AfterValidator(_outside_the_bar)]


Turn: TypeAlias = UserTurn | AssistantTurn | ToolStep
"""What a conversation is made of."""

Payload: TypeAlias = Annotated[
    Instruction
    | OutputContract
    | ToolContract
    | SkillEntry
    | SkillBody
    | Example
    | TaskStateText
    | OpenQuestion
    | Evidence
    | Memory
    | Note
    | UserTurn
    | AssistantTurn
    | ToolStep
    | Summary
    | Notification
    | StatusBar,
    Field(discriminator="kind"),
]


def pairing_problem(messages: Sequence[Message]) -> str | None:
    """The first break of the pairing rule in words, or None.

    The rule: the tool messages directly after an assistant message answer exactly its calls, each id once
    (all of several parallel calls included), and a tool message stands nowhere else.
    """
    waiting: dict[str, None] = {}
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id is None or message.tool_call_id not in waiting:
                return f"every tool result follows its call, but {message.tool_call_id} answers no open call"
            del waiting[message.tool_call_id]
            continue
        if waiting:
            return f"every tool call is answered before the next message, but {next(iter(waiting))} has no result"
        ids = [call.id for call in message.tool_calls]
        if twice := _first_repeated(ids):
            return f"every tool call has its own id, but {twice} comes twice in one message"
        waiting = dict.fromkeys(ids)
    return f"every tool call is answered, but {next(iter(waiting))} has no result" if waiting else None


def _first_repeated(ids: Sequence[str]) -> str | None:
    seen: set[str] = set()
    for value in ids:
        if value in seen:
            return value
        seen.add(value)
    return None
