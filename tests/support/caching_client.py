"""A served model with a prefix cache: whole blocks under their whole prefix and salt, in an endless pool.

Written from the rule alone and sharing no code with the predictor, so that a study run against it proves something.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from serving.chat import ChatRenderer
from serving.client import CompletionRequest, Request, Usage
from tests.support.scripted_client import ScriptedClient, ScriptedStream


@dataclass
class CachingClient:
    """Answers with the next of `replies`, and with one token where they are used up, or where one is asked for."""

    folder: Path
    block_size: int
    replies: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    forgets: bool = False
    """Reports nothing as cached: a server that is not what it says."""
    seconds_per_token: float = 0.001
    """Of waiting for the first token, for every prompt token that is not cached."""
    renderer: ChatRenderer = field(init=False)
    _blocks: set[tuple[str | None, tuple[int, ...]]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.renderer = ChatRenderer(self.folder)

    def stream(self, request: Request, *, manifest_id: str | None = None) -> ScriptedStream:
        self.requests.append(request)
        reply = self.replies.pop(0) if self.replies and request.max_tokens != 1 else ""
        stream = ScriptedClient(self._renderer(request), [reply]).stream(request, manifest_id=manifest_id)
        prompt = stream.exchange.prompt_token_ids or ()
        output = (stream.exchange.output_token_ids or ())[: request.max_tokens]
        cached = self._cached(prompt, request.cache_salt)
        stored = (prompt + output)[:-1]
        self._blocks.update((request.cache_salt, start) for start in self._starts(stored))
        waited = int(1e9 * self.seconds_per_token * (len(prompt) - cached))
        times = {"first_token_ns": waited, "last_token_ns": waited, "done_ns": waited}
        stream.exchange = stream.exchange.model_copy(
            update={
                "timings": stream.exchange.timings.model_copy(update=times),
                "output_token_ids": output,
                "usage": Usage(
                    prompt_tokens=len(prompt),
                    completion_tokens=len(output),
                    cached_tokens=0 if self.forgets else cached,
                ),
            }
        )
        return stream

    def _renderer(self, request: Request) -> ChatRenderer:
        """The server's own template, told what the request says."""
        if isinstance(request, CompletionRequest) or not request.chat_template_kwargs:
            return self.renderer
        return ChatRenderer(
            self.folder, template_kwargs=request.chat_template_kwargs, tokenizer=self.renderer.tokenizer
        )

    def _cached(self, prompt: tuple[int, ...], salt: str | None) -> int:
        found = 0
        for start in self._starts(prompt[:-1]):
            if (salt, start) not in self._blocks:
                break
            found = len(start)
        return found

    def _starts(self, ids: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        return (ids[:end] for end in range(self.block_size, len(ids) + 1, self.block_size))
