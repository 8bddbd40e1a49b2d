"""A stand-in for a served model that reuses whole blocks of what it was sent: no engine, no weights, no time.

It renders with the model's own template and counts reuse by comparing lists, so what a prediction is held against
here was made by other means than the prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from experiments.agent.taggedcalls import TaggedReply
from serving.chat import ChatRenderer
from serving.client import CompletionRequest, Exchange, Request, StreamEvent, Surface, Usage
from tests.support.scripted import exchange, received


@dataclass
class FinishedStream:
    exchange: Exchange

    def __iter__(self) -> Iterator[StreamEvent]:
        return iter(())

    def close(self) -> None:
        pass


@dataclass
class ReusingClient:
    """Answers every request with one token, or with `replies`, each the raw text of a completion, one after another.

    `requests` keeps what came.
    """

    renderer: ChatRenderer
    block_size: int
    requests: list[Request] = field(default_factory=list)
    stored: dict[str | None, list[tuple[int, ...]]] = field(default_factory=dict)
    """What requests left, by salt."""
    replies: Sequence[str] = ()
    seconds_per_token: float = 0.001
    answer: int = 0
    """The id of the one token."""
    reuses: bool = True
    """False: a server that computes everything, whatever it holds."""

    def stream(self, request: Request, *, manifest_id: str | None = None) -> FinishedStream:
        self.requests.append(request)
        token_in = isinstance(request, CompletionRequest)
        prompt = (
            request.prompt
            if isinstance(request, CompletionRequest)
            else self.renderer.render_body(request.messages, request.tools).token_ids
        )
        before = self.stored.setdefault(request.cache_salt, [])
        shared = max((_common(prompt, one) for one in before), default=0) if self.reuses else 0
        cached = min(shared, len(prompt) - 1) // self.block_size * self.block_size
        raw = self.replies[len(self.requests) - 1] if self.replies else None
        output = (self.answer,) if raw is None else self._ids(raw)
        before.append((*prompt, *output[:-1]))
        made = exchange("") if raw is None else _said(raw, len(self.requests), token_in=token_in)
        waited = int(1e9 * self.seconds_per_token * (len(prompt) - cached))
        return FinishedStream(
            made.model_copy(
                update={
                    "surface": Surface.TOKEN_IN if token_in else Surface.CHAT,
                    "prompt_token_ids": tuple(prompt),
                    "output_token_ids": output,
                    "usage": Usage(
                        prompt_tokens=len(prompt), completion_tokens=len(output), cached_tokens=cached
                    ),
                    "manifest_id": manifest_id,
                    "timings": made.timings.model_copy(
                        update={"first_token_ns": waited, "last_token_ns": waited, "done_ns": waited}
                    ),
                }
            )
        )

    def _ids(self, raw: str) -> tuple[int, ...]:
        tokenizer = self.renderer.tokenizer
        return tuple(tokenizer.encode(raw + tokenizer.named_tokens()["eos_token"]).ids)


def _said(raw: str, number: int, *, token_in: bool) -> Exchange:
    if token_in:
        return exchange(raw)
    reply = TaggedReply.read(raw)
    calls = (
        received(call.name, call.arguments, f"server-{number}-{index}", index)
        for index, call in enumerate(reply.calls)
    )
    return exchange(reply.text, *calls, reasoning=reply.reasoning)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
