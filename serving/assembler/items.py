"""`ContextItem`: one piece of context with its layer, owner, source, version, trust and scope."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cached_property
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticSerializationError

from serving.assembler.kinds import KIND_RULES, MUST_BE_TRUSTED, MUST_NAME_TENANT, Kind, Layer, Trust
from serving.assembler.messages import FRAMING
from serving.assembler.payloads import Payload
from serving.assembler.record import SORTED, Instant, Record, digest
from serving.assembler.utility import Terms

_ITEM_ID: Final = re.compile(r"[^\s#]+")


def _usable_id(value: str) -> str:
    if not _ITEM_ID.fullmatch(value) or value == FRAMING:
        raise ValueError(
            f"an item id has no white space and no '#', is not empty, and is not the word '{FRAMING}'"
        )
    return value


ItemId = Annotated[str, AfterValidator(_usable_id)]


class Classification(IntEnum):
    """How confidential an item is; a reader needs a clearance at least as high."""

    PUBLIC = 0
    INTERNAL = 1
    CONFIDENTIAL = 2
    RESTRICTED = 3


class Scope(Record):
    """Who may read an item, and for which version of the world it holds; checked before any ranking."""

    tenant: str | None = None
    """Compared exactly. None: belongs to the deployment and to no tenant (instructions, tools)."""
    readers: Annotated[frozenset[str], SORTED] | None = None
    """Actor ids or groups, any of which suffices; None: everyone in the tenant; empty: nobody."""
    classification: Classification = Classification.PUBLIC
    applies_to: dict[str, Annotated[frozenset[str], SORTED]] = Field(default_factory=dict)
    """Facets such as {"product": {"3.1", "3.2"}}; the request must name each facet with one of the values."""
    effective_from: Instant | None = None
    effective_until: Instant | None = None
    """The first instant at which the item no longer holds."""
    lookup_failed: bool = False
    """The permission or provenance could not be established: nobody may read it."""


class Condition(Record):
    """A yes/no question about the request that decides whether an item is in it."""

    name: str = Field(min_length=1)
    holds: bool = True


class ContextItem(Record):
    """One piece of context, as it enters the assembler; frozen, and never changed by it."""

    id: ItemId
    payload: Payload
    layer: Layer = Field(default=None, validate_default=False)  # type: ignore[assignment]
    """Default: the layer of the kind (`KIND_RULES`)."""
    trust: Trust = Field(default=None, validate_default=False)  # type: ignore[assignment]
    """Default: the trust of the kind (`KIND_RULES`)."""
    owner: str = "application"
    source: str = "application"
    version: str | None = None
    scope: Scope = Scope()
    tokens: int | None = Field(default=None, ge=0)
    """What the item is expected to cost; None: estimated. The rendered count overrules it."""
    terms: Terms = Terms()
    required: bool = False
    """Never dropped for lack of room; some kinds are so always (`KIND_RULES`)."""
    order: int = 0
    """Place among the items of the same layer: lower comes first, equal ones go by worth and then id."""
    supersedes: tuple[str, ...] = ()
    """Ids that this item replaces; each is shown as a short note that says why, and not itself."""
    supersedes_reason: str = ""
    condition: Condition | None = None
    """Present when the item is in the request only under a condition; the cache-key lint counts these."""

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_kind(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        payload = data.get("payload")
        named = payload.get("kind") if isinstance(payload, dict) else getattr(payload, "kind", None)
        rule = next((rule for kind, rule in KIND_RULES.items() if kind == named), None)
        if rule is None:
            return data
        return {"layer": rule.layer, "trust": rule.trust, **data}

    def _problem(self) -> str | None:
        try:
            _ = self.content_size
        except PydanticSerializationError:
            return f"{self.id} holds a text that UTF-8 cannot carry (a lone surrogate); repair it"
        if self.kind in MUST_BE_TRUSTED and self.trust is not Trust.TRUSTED:
            return f"{self.id} ({self.kind.value}) instructs the model, so its trust must be 'trusted'"
        if self.kind in MUST_NAME_TENANT and self.scope.tenant is None:
            return f"{self.id} ({self.kind.value}) is somebody's data, so its scope must name a tenant"
        return None

    @property
    def kind(self) -> Kind:
        """The payload's kind."""
        return self.payload.kind

    @property
    def is_required(self) -> bool:
        """Required by its own flag or by its kind."""
        return self.required or KIND_RULES[self.kind].required

    @property
    def content_json(self) -> str:
        """The payload as JSON: what is hashed, and whose length is the first estimate of the size."""
        return self.payload.model_dump_json()

    # Kept, for an item of the log is asked in every call; the JSON itself is not, it is as large as the item.
    @cached_property
    def content_size(self) -> int:
        """Bytes of the payload as JSON."""
        return len(self.content_json.encode())

    @cached_property
    def sha256(self) -> str:
        """Hash of the payload: equal content, equal hash."""
        return digest(self.content_json)
