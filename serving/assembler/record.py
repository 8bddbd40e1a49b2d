"""What all data of the assembler has in common: frozen, no unknown fields, one-sentence errors, UTC."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from serving.errors import UsageError


class Record(BaseModel):
    """A frozen value; a bad field raises `UsageError` with one sentence instead of pydantic's list."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _one_sentence(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            made = handler(data)
        except ValidationError as error:
            raise UsageError(_sentence(cls.__name__, error)) from error
        if made is not data and (problem := made._problem()):
            raise UsageError(f"{cls.__name__}: {problem}.")
        return made

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy that computes its cached properties anew; pydantic's takes them along, outdated or not."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def _problem(self) -> str | None:
        """What is wrong with the fields taken together, in words; None: nothing."""
        return None


def _sentence(owner: str, error: ValidationError) -> str:
    """The first problem only: where it is, what was expected, what came (never a long or secret text)."""
    first = error.errors(include_url=False)[0]
    place = ".".join([owner, *(str(part) for part in first["loc"])])
    expected = first["msg"].removeprefix("Value error, ")
    more = error.error_count() - 1
    tail = f" ({more} more problem{'s' * (more > 1)} in the same value)" if more else ""
    return f"{place}: {expected[:1].lower()}{expected[1:]}; got {_shown(first['input'])}{tail}."


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return f"a text of {len(value)} characters"
    return f"a value of type {type(value).__name__}"


def _utc(moment: datetime) -> datetime:
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("a moment lies in the years 1 to 9999 in UTC too") from error


Instant = Annotated[datetime, AfterValidator(_utc)]
"""A moment in UTC; a time without a zone is read as UTC, so that any two instants compare."""


SORTED = PlainSerializer(sorted, when_used="json")
"""For a set: written in order, since a set of texts has another order in every process and would hash anew."""


def digest(text: str) -> str:
    """SHA-256 of the UTF-8 form of `text`, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: the form that is hashed, never the form that is sent."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
