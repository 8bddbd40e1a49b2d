"""The text that stands for an old tool result is worded anew in every request."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.faults.base import CONTENT, FaultContext, with_text_of
from serving.assembler import Draft, DraftMessage, Invariant, Region


@dataclass(frozen=True, slots=True)
class ReplacementsRotated:
    """Masking saves tokens once; a mask that names the request it stands in loses all that follows, every time."""

    call: int
    masked: frozenset[str] | None
    """Owners of the results that the policy masked; None: all results but those of the last step."""
    name: str = "replacements-rotated"
    breaks: frozenset[Invariant] = frozenset({Invariant.REPLACEMENTS_FROZEN, Invariant.APPEND_ONLY})

    @classmethod
    def build(cls, context: FaultContext) -> ReplacementsRotated:
        """The fault for one call."""
        return cls(context.call, context.masked)

    def apply(self, draft: Draft) -> Draft:
        """The draft with a text that names this call in the place of every masked result."""
        masked = _all_but_last_step(draft) if self.masked is None else self.masked
        return replace(draft, messages=tuple(self._rotated(message, masked) for message in draft.messages))

    def _rotated(self, message: DraftMessage, masked: frozenset[str]) -> DraftMessage:
        owner = _owner(message)
        if owner not in masked:
            return message
        return with_text_of(message, owner, f"[result left out to save room, as of request {self.call}]")


def _all_but_last_step(draft: Draft) -> frozenset[str]:
    roles = [message.message.role for message in draft.messages]
    last = max((index for index, role in enumerate(roles) if role == "assistant"), default=0)
    return frozenset(_owner(message) for message in draft.messages[:last]) - {""}


def _owner(message: DraftMessage) -> str:
    """Who wrote a tool result; an empty text for any other message."""
    if message.region is not Region.TRAJECTORY or message.message.role != "tool":
        return ""
    return next((span.item_id for span in message.spans if span.path == CONTENT), "")
