"""`Observation`: what a tool found, field by field, in place of what it printed."""

from __future__ import annotations

import copy
import json
from typing import Annotated, Final, Self, TypeAlias

from pydantic import AfterValidator, Field, JsonValue

from serving.assembler.payloads import Text, ToolResult
from serving.assembler.quoting import quoted
from serving.assembler.record import Instant, Record
from serving.errors import UsageError

LONGEST_TEXT: Final = 4_000
"""Characters of an observation's text; what needs more belongs into the artifact that it refers to."""

_WHOLE_LIMIT: Final = 2**63
"""Beyond it, readers of JSON disagree on what a number is."""

_BEFORE: Final = ("tool", "status", "checked_at")
_AFTER: Final = ("artifact_ref", "error_class", "next_actions")

VerifiedValue: TypeAlias = str | int | float | bool | None


class Observation(Record):
    """The outcome of one tool call: verified fields, when they held, and where the raw output is kept."""

    tool: Text
    status: Text
    """The outcome in the tool's own terms: `revoked`, `not_found`, `ok`."""
    checked_at: Instant
    """When the fields were verified; given by the caller."""
    verified: Annotated[dict[str, VerifiedValue], AfterValidator(copy.copy)] = Field(default_factory=dict)
    """Fields that code has checked against the tool's output schema; order means nothing."""
    artifact_ref: Text | None = None
    error_class: Text | None = None
    """The kind of failure, for code and model to act on; None: the call did not fail."""
    next_actions: tuple[Text, ...] = ()
    """What may be done now. Words for the model: the gates and the stage decide what is offered."""

    def _problem(self) -> str | None:
        if taken := sorted(self.verified.keys() & {*_BEFORE, *_AFTER}):
            return f"a verified field has a name of its own, but '{taken[0]}' is one of the observation's"
        if any(isinstance(value, int) and abs(value) >= _WHOLE_LIMIT for value in self.verified.values()):
            return "a verified whole number lies within ±2^63; give a longer one as text"
        if (length := len(self.text())) > LONGEST_TEXT:
            return f"its text may have {LONGEST_TEXT} characters, but has {length}; keep long values in the artifact"
        return None

    @property
    def failed(self) -> bool:
        """Whether the call failed."""
        return self.error_class is not None

    def text(self) -> str:
        """One line of JSON, absent fields left out: equal observations have equal bytes.

        Strings cannot leave their quotes or close a tag (`quoting.py`); `read` gives the observation back.
        """
        fields: dict[str, JsonValue] = {
            "tool": self.tool,
            "status": self.status,
            "checked_at": self.checked_at.isoformat().replace("+00:00", "Z"),
            **dict(sorted(self.verified.items())),
        }
        if self.artifact_ref is not None:
            fields["artifact_ref"] = self.artifact_ref
        if self.error_class is not None:
            fields["error_class"] = self.error_class
        if self.next_actions:
            fields["next_actions"] = list(self.next_actions)
        return "{" + ", ".join(f"{quoted(name)}: {_json(value)}" for name, value in fields.items()) + "}"

    @classmethod
    def read(cls, text: str) -> Self:
        """The observation behind a text that `text` wrote; `UsageError` for any other."""
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise UsageError("Expected the text of an observation, one JSON object, but this is none.")
        own = {name: fields.pop(name) for name in (*_BEFORE, *_AFTER) if name in fields}
        return cls.model_validate({**own, "verified": fields})

    def kept_at(self, artifact_ref: str) -> Self:
        """The same observation, its raw output at `artifact_ref`."""
        return type(self).model_validate({**dict(self), "artifact_ref": artifact_ref})

    def as_result(self, call_id: str) -> ToolResult:
        """What the model reads as the answer to its call."""
        return ToolResult(
            call_id=call_id, content=self.text(), failed=self.failed, artifact_ref=self.artifact_ref
        )


def _json(value: JsonValue) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return json.dumps(value)
