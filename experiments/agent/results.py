"""From what a tool gave back to what the model reads: without secrets, and short, before anything keeps it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from experiments.agent.execution import FAILED, Executed
from experiments.agent.refusals import Refusal
from serving.assembler import Observation, ToolCall, ToolResult
from serving.assembler.quoting import quoted
from serving.assembler.record import digest
from serving.assembler.typed_observation import VerifiedValue
from serving.redact import Redactor
from serving.stores import ArtifactStore, observe

HEAD_SHOWN: Final = 1_500
TAIL_SHOWN: Final = 500
FIELD_SHOWN: Final = 100
"""Characters of a large result that stand in its observation; the whole is in the artifact store."""


@dataclass(frozen=True)
class ResultWriter:
    """Writes results for the history; what leaves here is what is sent and what is stored."""

    redactor: Redactor
    artifacts: ArtifactStore | None
    longest: int
    """Characters of a result that stays whole; with an artifact store, longer ones go there."""
    run_id: str

    def refused(self, call: ToolCall, refusal: Refusal, now: datetime) -> ToolResult:
        """The answer to a call that was not run: a typed observation."""
        sentence = self.redactor.redact(refusal.sentence).text
        observation = replace(refusal, sentence=sentence).observation(call.name, now)
        return observation.as_result(call.id)

    def ran(
        self, call: ToolCall, executed: Executed, *, made: int, place: tuple[int, int], now: datetime
    ) -> ToolResult:
        """The answer to a call that was run for the `made`-th time; `place`: step and position of the call."""
        text = self.redactor.redact(executed.outcome.text).text
        repeated = "" if made < 2 else f"[call number {made} with the same arguments]\n"
        failed = executed.error_class is not None
        if self.artifacts is None or len(text) <= self.longest:
            return ToolResult(call_id=call.id, content=f"{repeated}{text}", failed=failed)
        verified: dict[str, VerifiedValue] = {
            **self._verified(executed),
            "characters": len(text),
            "lines": text.count("\n") + 1,
            "head": _excerpt(text, HEAD_SHOWN, head=True),
            "tail": _excerpt(text, TAIL_SHOWN, head=False),
        }
        if repeated:
            verified["same_call_number"] = made
        observation = Observation(
            tool=call.name,
            status="failed" if failed else "ok",
            checked_at=now,
            verified=verified,
            error_class=(executed.error_class or FAILED) if failed else None,
        )
        run = digest(self.run_id)[:16]
        reference = f"toolrun://{run}/step-{place[0]}/{place[1]}"
        return observe(self.artifacts, call.id, reference=reference, raw=text, observation=observation)

    def _verified(self, executed: Executed) -> dict[str, VerifiedValue]:
        """The tool's own fields that are short, without secrets."""
        return {
            name: self.redactor.redact(value).text if isinstance(value, str) else value
            for name, value in executed.outcome.verified.items()
            if not isinstance(value, str) or len(value) <= FIELD_SHOWN
        }


def _excerpt(text: str, characters: int, *, head: bool) -> str:
    """An end of the text whose quoted form, in which marks are spelt out, has at most `characters`."""
    size = characters
    while True:
        part = text[:size] if head else text[-size:]
        if len(quoted(part)) <= characters + 2 or size == 1:
            return part
        size = max(1, size // 2)
