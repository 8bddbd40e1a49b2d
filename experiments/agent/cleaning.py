"""Secrets that the model itself wrote: cut before its message can enter a history."""

from __future__ import annotations

from dataclasses import replace

from experiments.agent.callform import Said
from serving.redact import Redactor


def without_secrets(said: Said, redactor: Redactor) -> tuple[Said, tuple[str, ...]]:
    """The message as it may be kept, and the kinds of what was cut, sorted.

    A call runs with the arguments that are kept: what is stored, sent and executed is one thing. Arguments
    that are no JSON any more are refused like any others.
    """
    removed: set[str] = set()

    def clean(text: str) -> str:
        redaction = redactor.redact(text)
        removed.update(redaction.removed)
        return redaction.text

    calls = tuple(
        replace(
            received,
            call=received.call.model_copy(
                update={
                    "name": clean(received.call.name),
                    "arguments": clean(received.call.arguments),
                }
            ),
        )
        for received in said.calls
    )
    cleaned = replace(
        said,
        text=clean(said.text),
        reasoning=None if said.reasoning is None else clean(said.reasoning),
        calls=calls,
    )
    return (cleaned, tuple(sorted(removed))) if removed else (said, ())
