"""`ContextManifest`: what one packet was made of, by id, hash and number, without any of its text."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

from serving.assembler.kinds import Kind, Layer
from serving.assembler.record import Instant, Record, digest
from serving.assembler.renderer import RendererIdentity
from serving.assembler.utility import Terms

MANIFEST_SCHEMA: Final = 1
"""The first kept schema. Schema 0, of which runs are kept too, lacked the fields in `_SINCE_SCHEMA_1`."""

ASSEMBLER_VERSION: Final = "2"
"""Raised when equal inputs may give other bytes than before."""


_SINCE_SCHEMA_1: Final = {
    "stage",
    "redaction",
    "masking",
    "compactions",
    "compaction",
    "status_bar",
    "inert_marks",
}


class DropReason(StrEnum):
    """Why a known item is not in the packet, in the order of the gates."""

    MEMORY_PURPOSE = "memory_purpose"
    MEMORY_EXPIRED = "memory_expired"
    MEMORY_SOURCE = "memory_source"
    CONDITION_FALSE = "condition_false"
    SUPERSEDED = "superseded"
    NO_ATTEMPTS_LEFT = "no_attempts_left"
    DEADLINE_PASSED = "deadline_passed"
    TOOL_NOT_ALLOWED = "tool_not_allowed"
    TOOL_NOT_IN_STAGE = "tool_not_in_stage"
    COMPACTED = "compacted"
    """A summary stands for it; the original is in the log."""
    UTILITY_NOT_POSITIVE = "utility_not_positive"
    NO_ROOM = "no_room"


class ItemRecord(Record):
    """What the manifest keeps of any item."""

    id: str
    kind: Kind
    layer: Layer
    owner: str
    source: str
    version: str | None
    sha256: str
    terms: Terms
    utility: float


class SelectedItem(ItemRecord):
    """An item in the packet; `tokens` are counted on the rendered packet."""

    required: bool
    tokens: int


class DroppedItem(ItemRecord):
    """An in-scope item that stayed out; `tokens` is what it was expected to cost, where anybody knew."""

    reason: DropReason
    tokens: int | None


class BudgetUse(Record):
    """Where the window went; `used` = all items + `framing` = rendered prompt tokens."""

    window: int
    max_output: int
    overhead: int
    budget: int
    used: int
    framing: int
    unused: int
    renders: int
    """How many renderings it took to find the selection."""


class ToolRecord(Record):
    """One offered tool; `schema_sha256` covers name, description and parameters as sent."""

    id: str
    name: str
    authority: str
    schema_sha256: str


class MemoryUse(Record):
    """Ids of loaded memories by standing."""

    facts: tuple[str, ...]
    hypotheses: tuple[str, ...]


class HistoryRange(Record):
    """Which part of the log was sent."""

    first: str | None
    last: str | None
    count: int


class OpenCall(Record):
    """A tool call without a result, closed in the packet by a fixed sentence."""

    item_id: str
    call_id: str


class LimitsLeft(Record):
    """What was left of the run when the packet was built; None: no such limit."""

    attempts: int | None
    seconds: float | None


class MissingRecord(Record):
    """A layer that lacks an optional source, and why."""

    layer: Layer
    source: str
    reason: str


class RetrievalRecord(Record):
    """How the candidates were found."""

    query_sha256: str
    filters: tuple[tuple[str, str], ...]


class CacheKeys(Record):
    """The lint of the static head: N yes/no conditions before the cache boundary make 2^N prefixes."""

    conditions: tuple[str, ...]
    distinct_prefixes: int


class FaultRecord(Record):
    """A fault that was applied, and the invariants it declares to break."""

    name: str
    breaks: tuple[str, ...]


class MaskRecord(Record):
    """One tool result that a short text stands for; hashes and sizes of both, tokens estimated."""

    owner: str
    reason: str
    content_sha256: str
    text_sha256: str
    tokens_before: int
    tokens_after: int


class MaskingRecord(Record):
    """What masking did to all tool results of the log, in estimated tokens."""

    masks: tuple[MaskRecord, ...]
    tokens_before: int
    tokens_after: int


class SensitiveItem(Record):
    """An item in the packet whose text holds what looks like a secret or personal data; kinds only."""

    item_id: str
    kinds: tuple[str, ...]


class RedactionVerdict(Record):
    """What a look for secrets and personal data found in the packet, which goes out as it is."""

    sensitive: tuple[SensitiveItem, ...]
    """In packet order; empty: nothing was found."""
    taken_out: tuple[str, ...]
    """Kinds taken out of this manifest's own words (sources, owners, ids of the run)."""


class CompactionRecord(Record):
    """A compaction in force, and what making it cost in tokens (None: the server did not say)."""

    id: str
    strategy: str
    strategy_version: str
    policy_version: str
    summaries: tuple[str, ...]
    covers: tuple[str, ...]
    tokens_before: int
    tokens_after: int
    calls: int
    prompt_tokens: int | None
    output_tokens: int | None


class CompactionVerdict(Record):
    """Whether the next request should find a part of the log compacted."""

    plan_id: str | None
    """None: nothing to do."""
    reason: str | None
    """Why nothing is to be done."""


class BarRecord(Record):
    """The status bar that the assembler built: what it can be asked, and whether it stays."""

    item_id: str
    mode: str
    answers: tuple[str, ...]


class InertMark(Record):
    """A mark of the model that an item's text held, shown so that it does not act."""

    item_id: str
    mark: str
    count: int


class ContextManifest(Record):
    """The record of one assembly; equal inputs give equal bytes. It holds no text of any item."""

    schema_version: Literal[0, 1] = MANIFEST_SCHEMA
    assembler_version: str = ASSEMBLER_VERSION
    request_id: str
    run_id: str
    step_id: str
    tenant: str
    surface: str
    decision: str
    timestamp: Instant
    """The caller's time."""
    policy_name: str
    policy_version: str
    policy_sha256: str
    renderer: RendererIdentity
    budget: BudgetUse
    tokens_by_layer: dict[Layer, int]
    """Layers in their fixed order, those without tokens absent; sums to `budget.used` − `budget.framing`."""
    selected: tuple[SelectedItem, ...]
    """In packet order."""
    dropped: tuple[DroppedItem, ...]
    """By id."""
    tools: tuple[ToolRecord, ...]
    memory: MemoryUse
    history: HistoryRange
    open_calls: tuple[OpenCall, ...]
    limits: LimitsLeft
    missing: tuple[MissingRecord, ...]
    retrieval: RetrievalRecord | None
    cache_keys: CacheKeys
    faults: tuple[FaultRecord, ...]
    packet_sha256: str
    """Over messages and tools as sent."""
    stage: str | None = None
    """Of the task, when the packet was built; None: the task has no stages."""
    redaction: RedactionVerdict | None = None
    """None: nobody looked."""
    masking: MaskingRecord | None = None
    """None: the policy masks nothing."""
    compactions: tuple[CompactionRecord, ...] = ()
    compaction: CompactionVerdict | None = None
    """None: the policy compacts nothing."""
    status_bar: BarRecord | None = None
    """None: the assembler built none."""
    inert_marks: tuple[InertMark, ...] = ()
    """By item and mark; the text of the item is recorded nowhere, the mark is the model's own."""

    @property
    def manifest_id(self) -> str:
        """The hash of the manifest itself: the name under which an exchange refers to it."""
        left_out = _SINCE_SCHEMA_1 if self.schema_version == 0 else None
        return digest(self.model_dump_json(exclude=left_out))

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the rendered prompt, framing included."""
        return self.budget.used
