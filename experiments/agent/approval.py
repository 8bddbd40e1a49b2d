"""The gate before a consequential tool: a decision about one exact call, taken by code and never by a text.

Nothing that a model, a document or a tool result says is looked at here. A decision names the call by a hash
over the run, its place in it, the tool and the bytes of the arguments, so it holds once and for nothing else.
"""

from __future__ import annotations

import hmac
from typing import Protocol

from pydantic import Field

from experiments.agent.refusals import Refusal, RefusalReason
from serving.assembler import Authority, ToolCall, ToolContract
from serving.assembler.record import Instant, Record, canonical_json, digest


class ApprovalRequest(Record):
    """What whoever decides is shown."""

    call_sha256: str
    tool: str
    arguments: str
    """Byte for byte as they will run."""
    effect: str
    authorization_scope: str | None = None


class Approval(Record):
    """A decision about the one call that `call_sha256` names."""

    call_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    approved: bool
    by: str = Field(min_length=1)
    """Who decided, for the record."""
    at: Instant


class Approver(Protocol):
    """Whoever may decide: a person at a terminal, a test, a service; asked once for each call."""

    def decide(self, request: ApprovalRequest) -> Approval | None:
        """The decision, or None for no decision, which is a refusal."""


def call_sha256(run_id: str, step: int, position: int, call: ToolCall) -> str:
    """The name of one exact call: `position` in the message of model call `step` of the run."""
    return digest(canonical_json([run_id, step, position, call.id, call.name, call.arguments]))


def needs_approval(contract: ToolContract) -> bool:
    """Whether a tool's calls are asked about one by one."""
    return contract.authority is Authority.CONSEQUENTIAL


def unapproved(
    call: ToolCall, contract: ToolContract, call_hash: str, approver: Approver | None
) -> Refusal | None:
    """None when the call may run: it needs no approval, or this very call was approved."""
    if not needs_approval(contract):
        return None
    if approver is None:
        return Refusal(RefusalReason.NOT_APPROVED, f"Nobody can approve {call.name} in this run.")
    decision = approver.decide(
        ApprovalRequest(
            call_sha256=call_hash,
            tool=call.name,
            arguments=call.arguments,
            effect=contract.effect,
            authorization_scope=contract.authorization_scope,
        )
    )
    if not isinstance(decision, Approval) or not hmac.compare_digest(decision.call_sha256, call_hash):
        return Refusal(RefusalReason.NOT_APPROVED, f"No decision about this call of {call.name} came.")
    if decision.approved is not True:
        return Refusal(RefusalReason.NOT_APPROVED, f"This call of {call.name} was not approved.")
    return None
