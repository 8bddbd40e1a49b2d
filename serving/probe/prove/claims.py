"""What a proof says: claims with a verdict and evidence, lies by name, and what could not be proven and why."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from serving.probe.prove.lies import NamedLie


class Claim(StrEnum):
    """What a proof tries to show about a server."""

    REPORTS = "reports cached tokens"
    RULE = "follows the one rule that is known"
    TOKEN_IN = "token ids: predicted = reported"  # noqa: S105 - no secret
    CHAT = "chat: predicted = reported"
    BLOCK_SIZE = "block size"
    SALT = "salts separate"
    OUTPUT = "generated tokens are reused"
    POOL = "pool size and eviction"
    RESET = "reset empties the cache"
    COUNTERS = "the counters of /metrics agree"
    EVENTS = "KV events tell the predicted pool"


class Verdict(StrEnum):
    """How a claim came out."""

    PROVEN = "proven"
    REFUTED = "refuted"
    UNPROVEN = "not proven"
    """Not shown either way; the sentence says why, and what would show it."""


class Finding(BaseModel):
    """One claim with its verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    claim: Claim
    verdict: Verdict
    sentence: str


class Compared(BaseModel):
    """One request of the proof: predicted beside reported."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str
    surface: str
    prompt_tokens: int
    predicted: int
    reported: int | None


class ServerProof(BaseModel):
    """The whole page."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_url: str
    model: str | None
    engine: str | None
    version: str | None
    block_size: int | None
    num_blocks: int | None
    asynchronous: bool | None
    findings: tuple[Finding, ...]
    lies: tuple[NamedLie, ...]
    compared: tuple[Compared, ...]

    @property
    def refuted(self) -> bool:
        """Whether anything the server tells is not so."""
        return any(finding.verdict is Verdict.REFUTED for finding in self.findings)
