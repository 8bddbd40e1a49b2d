"""The words in which an item that is not a turn is shown, and the fence around text of outside origin."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Final

from serving.assembler.gates import memory_standing
from serving.assembler.items import ContextItem
from serving.assembler.kinds import MUST_BE_TRUSTED, Trust
from serving.assembler.neutral import Neutraliser
from serving.assembler.payloads import (
    Evidence,
    Instruction,
    Memory,
    Note,
    Notification,
    OpenQuestion,
    OutputContract,
    SkillBody,
    SkillEntry,
    StatusBar,
    Summary,
    TaskStateText,
    ToolContract,
)
from serving.assembler.record import canonical_json, digest
from serving.errors import UsageError

NONCE_CHARACTERS: Final = 8


def shown(item: ContextItem, neutraliser: Neutraliser) -> str:
    """The text of an item in the head or the suffix, or where it stands in the history.

    Instructions are shown bare, so that a system prompt given as one item is sent as it is, marks of the model
    included: whoever runs the application may explain `<tool_call>`. Everything that is data is fenced and
    holds no live mark. Raises `UsageError` for a turn, which is a message and not a text.
    """
    if isinstance(item.payload, StatusBar):
        return f"<agent_status>\n{neutraliser.text(item.payload.text)}\n</agent_status>"
    text = _written(item)
    return text if item.kind in MUST_BE_TRUSTED else neutraliser.text(text)


def _written(item: ContextItem) -> str:
    match item.payload:
        case Instruction(text=text, title=title):
            return f"# {title}\n{text}" if title else text
        case OutputContract(text=text):
            return text
        case SkillEntry(name=name, description=description, loads=loads):
            return f"{loads.value.capitalize()} {name}: {description}"
        case SkillBody(name=name, text=text, file=file):
            return fenced("skill", item, {"name": name} | ({"file": file} if file else {}), text)
        case ToolContract(spec=spec):
            return fenced("tool", item, {"name": spec.name}, canonical_json(spec.to_api()))
        case TaskStateText(text=text):
            return fenced("task_state", item, {}, text)
        case OpenQuestion(text=text, conflict_between=between):
            attributes = {"between": ", ".join(between)} if between else {}
            return fenced("conflict" if between else "open_question", item, attributes, text)
        case Evidence() as evidence:
            return fenced("evidence", item, _evidence_attributes(item, evidence), evidence.text)
        case Memory() as memory:
            standing = memory_standing(memory)
            return fenced(
                "memory", item, {"standing": standing.value if standing else "unknown"}, memory.text
            )
        case Note(text=text):
            return fenced("note", item, {}, text)
        case Summary() as summary:
            return fenced("summary", item, summary.attributes, summary.text)
        case Notification(text=text, event=event):
            return fenced("notification", item, {"event": event}, text)
        case _:
            raise UsageError(
                f"A {item.kind.value} is a turn and stands in the history; {item.id} came as a text."
            )


def fenced(tag: str, item: ContextItem, attributes: Mapping[str, str], text: str) -> str:
    """`text` between tags that it cannot close: their name carries a hash of id, version and content.

    The nonce depends on the item alone, so the same item has the same bytes in every packet.
    """
    nonce = digest(canonical_json([item.id, item.version, item.sha256]))[:NONCE_CHARACTERS]
    named = {"id": item.id, **attributes}
    # A memory says instead whether it is a fact, which is what its gates decided.
    if item.trust is Trust.UNTRUSTED and not isinstance(item.payload, Memory):
        named["trust"] = item.trust.value
    written = "".join(f' {key}="{html.escape(" ".join(value.split()))}"' for key, value in named.items())
    return f"<{tag}:{nonce}{written}>\n{text}\n</{tag}:{nonce}>"


def _evidence_attributes(item: ContextItem, evidence: Evidence) -> dict[str, str]:
    times = {
        "effective": evidence.effective_date,
        "observed_at": evidence.observed_at,
        "valid_at": evidence.valid_at,
    }
    attributes = {
        "document": evidence.document,
        "version": item.version,
        "location": evidence.location,
        "applies": evidence.applicability,
        **{key: moment.isoformat() for key, moment in times.items() if moment is not None},
    }
    return {key: value for key, value in attributes.items() if value is not None}
