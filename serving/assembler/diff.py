"""`diff`: what separates two assemblies, in the words of the manifest; empty exactly when nothing does.

An item out of scope is in no manifest, so one that lost its permission shows as absent: a diff tells no more
than the two manifests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, TypeAlias

from pydantic import JsonValue

from serving.assembler.first_difference import (
    FirstByte,
    FirstToken,
    first_byte_that_differs,
    first_token_that_differs,
)
from serving.assembler.kinds import Kind
from serving.assembler.manifest import ContextManifest, DroppedItem, SelectedItem
from serving.assembler.packet import Packet
from serving.assembler.record import Record
from serving.assembler.renderer import Rendered
from serving.errors import UsageError


class Section(StrEnum):
    """The subject of a change, in the order of printing."""

    RULES = "rules"
    EVIDENCE = "evidence"
    TOOLS = "tools"
    MEMORY = "memory"
    OTHER_ITEMS = "other_items"
    """Examples, turns, notes, task state, notifications, the status bar, skills."""
    MISSING = "missing"
    BUDGET = "budget"
    LAYOUT = "layout"
    POLICY = "policy"
    RENDERER = "renderer"
    FAULTS = "faults"
    REQUEST = "request"
    """Ids, tenant, time, decision, limits: what the two calls were about."""


class Aspect(StrEnum):
    """Which side of the subject changed."""

    STANDING = "standing"
    """`selected`, `dropped`, or None: not in the manifest."""
    REASON = "reason"
    """Why it was dropped."""
    CONTENT = "content"
    """The hash of the text."""
    REVISION = "revision"
    KIND = "kind"
    LAYER = "layer"
    OWNER = "owner"
    SOURCE = "source"
    RELEVANCE = "relevance"
    AUTHORITY = "authority"
    FRESHNESS = "freshness"
    REDUNDANCY = "redundancy"
    INJECTION_RISK = "injection_risk"
    UTILITY = "utility"
    REQUIRED = "required"
    TOKENS = "tokens"
    TOOL_NAME = "tool_name"
    TOOL_SCHEMA = "tool_schema"
    TOOL_AUTHORITY = "tool_authority"
    MEMORY_STANDING = "memory_standing"
    ORDER = "order"
    VALUE = "value"


class Change(Record):
    """One difference; None stands for what is absent on that side."""

    section: Section
    subject: str
    """An item id, or the manifest's own name of a number, such as `budget.window`."""
    aspect: Aspect
    before: JsonValue
    after: JsonValue


class ManifestDiff(Record):
    """All differences, sorted, so that equal pairs give equal diffs."""

    changes: tuple[Change, ...]
    packets_compared: bool = False
    tokens_compared: bool = False
    first_byte: FirstByte | None = None
    first_token: FirstToken | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing that was compared differs."""
        return not self.changes and self.first_byte is None and self.first_token is None

    def swapped(self) -> ManifestDiff:
        """The diff in the other direction."""
        return ManifestDiff(
            changes=tuple(
                change.model_copy(update={"before": change.after, "after": change.before})
                for change in self.changes
            ),
            packets_compared=self.packets_compared,
            tokens_compared=self.tokens_compared,
            first_byte=self.first_byte and self.first_byte.swapped(),
            first_token=self.first_token and self.first_token.swapped(),
        )

    def to_text(self) -> str:
        """One line a change under the name of its section; `+` came, `-` went, `~` changed."""
        if self.is_empty:
            return "no difference"
        lines: list[str] = []
        for section in Section:
            here = [_line(change) for change in self.changes if change.section is section]
            if section is Section.LAYOUT:
                here += [str(first) for first in (self.first_byte, self.first_token) if first is not None]
            if here:
                lines.append(f"{section.value.replace('_', ' ')}:")
                lines.extend(f"  {line}" for line in here)
        return "\n".join(lines)


def diff(
    before: ContextManifest | Packet,
    after: ContextManifest | Packet,
    *,
    rendered: tuple[Rendered, Rendered] | None = None,
) -> ManifestDiff:
    """What changed from `before` to `after`.

    Two packets are also compared byte by byte, two renderings token by token. `diff(b, a)` is
    `diff(a, b).swapped()`. Raises `UsageError` for anything that is neither a manifest nor a packet.
    """
    old, new = _manifest(before), _manifest(after)
    packets = isinstance(before, Packet) and isinstance(after, Packet)
    return ManifestDiff(
        changes=tuple(sorted((*_item_changes(old, new), *_other_changes(old, new)), key=_place)),
        packets_compared=packets,
        tokens_compared=rendered is not None,
        first_byte=first_byte_that_differs(before, after)
        if isinstance(before, Packet) and isinstance(after, Packet)
        else None,
        first_token=first_token_that_differs(*rendered) if rendered is not None else None,
    )


_Facts: TypeAlias = dict[Aspect, JsonValue]

_SECTION_OF_KIND: Final[Mapping[Kind, Section]] = {
    Kind.INSTRUCTION: Section.RULES,
    Kind.OUTPUT_CONTRACT: Section.RULES,
    Kind.EVIDENCE: Section.EVIDENCE,
    Kind.TOOL_CONTRACT: Section.TOOLS,
    Kind.MEMORY: Section.MEMORY,
}
_SECTIONS: Final = tuple(Section)
_ASPECTS: Final = tuple(Aspect)


def _manifest(side: ContextManifest | Packet) -> ContextManifest:
    if isinstance(side, Packet):
        return side.manifest
    if isinstance(side, ContextManifest):
        return side
    raise UsageError(f"diff takes manifests or packets, but a {type(side).__name__} came.")


def _place(change: Change) -> tuple[int, str, int]:
    return (_SECTIONS.index(change.section), change.subject, _ASPECTS.index(change.aspect))


def _item_changes(old: ContextManifest, new: ContextManifest) -> Iterator[Change]:
    before, after = _facts_by_id(old), _facts_by_id(new)
    for item_id in before.keys() | after.keys():
        was, now = before.get(item_id, {}), after.get(item_id, {})
        # The earlier of two sections, whichever side it is on: the swapped diff must say the same.
        section = min((_section(facts) for facts in (was, now) if facts), key=_SECTIONS.index)
        for aspect in _compared(was, now):
            if was.get(aspect) != now.get(aspect):
                yield Change(
                    section=section,
                    subject=item_id,
                    aspect=aspect,
                    before=was.get(aspect),
                    after=now.get(aspect),
                )


def _compared(was: _Facts, now: _Facts) -> Sequence[Aspect]:
    if not was or not now:
        return (Aspect.STANDING, Aspect.REASON)
    if was.get(Aspect.STANDING) != now.get(Aspect.STANDING):
        # What is rendered is no change of what was only expected, and nobody knows what a drop required.
        unlike = (Aspect.TOKENS, Aspect.REQUIRED, Aspect.MEMORY_STANDING)
        return [
            aspect for aspect in _ASPECTS if aspect not in unlike and not aspect.value.startswith("tool_")
        ]
    return _ASPECTS


def _section(facts: _Facts) -> Section:
    return _SECTION_OF_KIND.get(Kind(str(facts[Aspect.KIND])), Section.OTHER_ITEMS)


def _facts_by_id(manifest: ContextManifest) -> dict[str, _Facts]:
    items: list[SelectedItem | DroppedItem] = [*manifest.selected, *manifest.dropped]
    facts = {item.id: _facts(item) for item in items}
    for tool in manifest.tools:
        facts.setdefault(tool.id, {Aspect.KIND: Kind.TOOL_CONTRACT.value}).update(
            {
                Aspect.TOOL_NAME: tool.name,
                Aspect.TOOL_SCHEMA: tool.schema_sha256,
                Aspect.TOOL_AUTHORITY: tool.authority,
            }
        )
    for standing, ids in (("fact", manifest.memory.facts), ("hypothesis", manifest.memory.hypotheses)):
        for item_id in ids:
            known = facts.setdefault(item_id, {Aspect.KIND: Kind.MEMORY.value})
            known[Aspect.MEMORY_STANDING] = standing
    return facts


def _facts(item: SelectedItem | DroppedItem) -> _Facts:
    facts: _Facts = {
        Aspect.KIND: item.kind.value,
        Aspect.LAYER: item.layer.value,
        Aspect.OWNER: item.owner,
        Aspect.SOURCE: item.source,
        Aspect.REVISION: item.version,
        Aspect.CONTENT: item.sha256,
        Aspect.RELEVANCE: item.terms.relevance,
        Aspect.AUTHORITY: item.terms.authority,
        Aspect.FRESHNESS: item.terms.freshness,
        Aspect.REDUNDANCY: item.terms.redundancy,
        Aspect.INJECTION_RISK: item.terms.injection_risk,
        Aspect.UTILITY: item.utility,
        Aspect.TOKENS: item.tokens,
    }
    if isinstance(item, SelectedItem):
        return facts | {Aspect.STANDING: "selected", Aspect.REQUIRED: item.required}
    return facts | {Aspect.STANDING: "dropped", Aspect.REASON: item.reason.value}


def _other_changes(old: ContextManifest, new: ContextManifest) -> Iterator[Change]:
    before, after = _values(old), _values(new)
    for place in before.keys() | after.keys():
        old_value, new_value = before.get(place), after.get(place)
        if old_value != new_value:
            yield Change(
                section=place[0], subject=place[1], aspect=Aspect.VALUE, before=old_value, after=new_value
            )
    for section, subject, order_of in _ORDERS:
        was, now = order_of(old), order_of(new)
        both = set(was) & set(now)
        was, now = ([name for name in order if name in both] for order in (was, now))
        if was != now:
            yield Change(
                section=section, subject=subject, aspect=Aspect.ORDER, before=list(was), after=list(now)
            )


def _values(manifest: ContextManifest) -> dict[tuple[Section, str], JsonValue]:
    """All of the manifest beside its items, one value a name."""
    plain: dict[str, JsonValue] = manifest.model_dump(mode="json")
    values: dict[tuple[Section, str], JsonValue] = {}
    for name, value in plain.items():
        if name in ("selected", "dropped", "tools", "memory", "missing", "faults"):
            continue
        section = _SECTION_OF_FIELD.get(name, Section.REQUEST)
        if isinstance(value, dict):
            values.update({(section, f"{name}.{key}"): below for key, below in value.items()})
        elif value is not None:
            values[section, name] = value
    for gap in sorted(manifest.missing, key=lambda gap: (gap.layer, gap.source, gap.reason)):
        # A set, whatever its order: one source may fail in two ways.
        known = values.setdefault((Section.MISSING, f"{gap.layer.value}/{gap.source}"), [])
        if isinstance(known, list):
            known.append(gap.reason)
    for fault in manifest.faults:
        found = values.setdefault((Section.FAULTS, fault.name), [])
        if isinstance(found, list):
            found.append(list(fault.breaks))
    return values


_SECTION_OF_FIELD: Final[Mapping[str, Section]] = {
    "budget": Section.BUDGET,
    "tokens_by_layer": Section.BUDGET,
    "policy_name": Section.POLICY,
    "policy_version": Section.POLICY,
    "policy_sha256": Section.POLICY,
    "renderer": Section.RENDERER,
    "packet_sha256": Section.LAYOUT,
    "cache_keys": Section.LAYOUT,
    "retrieval": Section.EVIDENCE,
    "history": Section.OTHER_ITEMS,
    "open_calls": Section.OTHER_ITEMS,
    "redaction": Section.OTHER_ITEMS,
    "masking": Section.OTHER_ITEMS,
    "compactions": Section.OTHER_ITEMS,
    "compaction": Section.OTHER_ITEMS,
    "status_bar": Section.OTHER_ITEMS,
    "inert_marks": Section.LAYOUT,
}


_ORDERS: Final[tuple[tuple[Section, str, Callable[[ContextManifest], list[str]]], ...]] = (
    (Section.LAYOUT, "selected", lambda manifest: [item.id for item in manifest.selected]),
    (Section.LAYOUT, "tools", lambda manifest: [tool.id for tool in manifest.tools]),
    (Section.FAULTS, "faults", lambda manifest: [fault.name for fault in manifest.faults]),
)
"""Lists whose order is a fact of its own: compared over what both sides have."""


def _line(change: Change) -> str:
    if change.aspect is Aspect.STANDING and None in (change.before, change.after):
        mark, value = ("+", change.after) if change.before is None else ("-", change.before)
        return f"{mark} {change.subject} ({value})"
    return f"~ {change.subject}: {change.aspect.value} {_shown(change.before)} → {_shown(change.after)}"


def _shown(value: JsonValue) -> str:
    match value:
        case None:
            return "none"
        case str() if len(value) == 64 and set(value) <= set("0123456789abcdef"):
            return value[:12]
        case list():
            return "[" + ", ".join(_shown(part) for part in value) + "]"
        case dict():
            return "{" + ", ".join(f"{key}: {_shown(part)}" for key, part in value.items()) + "}"
        case _:
            return str(value)
