"""A served model that follows a script: it renders with the model's own template and says what it is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from experiments.agent.taggedcalls import TaggedReply
from serving.chat import ChatRenderer
from serving.client import (
    CompletionRequest,
    Exchange,
    ReceivedToolCall,
    Request,
    StreamEvent,
    Surface,
    TextDelta,
    ToolCallComplete,
    Usage,
)
from tests.support.scripted import exchange

PIECE = 7
"""Characters of one delta on the token-in surface."""


@dataclass
class ScriptedStream:
    events: Sequence[StreamEvent]
    exchange: Exchange

    def __iter__(self) -> Iterator[StreamEvent]:
        return iter(self.events)

    def close(self) -> None:
        pass


@dataclass
class ScriptedClient:
    """Gives out `replies`, each the raw text of a completion; ids of prompt and answer are those of the model."""

    renderer: ChatRenderer
    replies: Sequence[str]
    prompts: list[tuple[int, ...]] = field(default_factory=list)

    def stream(self, request: Request, *, manifest_id: str | None = None) -> ScriptedStream:
        raw = self.replies[len(self.prompts)]
        token_in = isinstance(request, CompletionRequest)
        prompt = (
            request.prompt
            if isinstance(request, CompletionRequest)
            else self.renderer.render_body(request.messages, request.tools).token_ids
        )
        self.prompts.append(prompt)
        tokenizer = self.renderer.tokenizer
        end = tokenizer.named_tokens()["eos_token"]
        output = tokenizer.encode(raw + end).ids
        reply = TaggedReply.read(raw)
        calls = tuple(
            ReceivedToolCall(
                index=index,
                id=f"server-{len(self.prompts)}-{index}",
                name=call.name,
                arguments=call.arguments,
                first_ns=1,
                closed_ns=1,
            )
            for index, call in enumerate(reply.calls)
        )
        made = exchange(raw) if token_in else exchange(reply.text, *calls, reasoning=reply.reasoning)
        done = made.model_copy(
            update={
                "surface": Surface.TOKEN_IN if token_in else Surface.CHAT,
                "prompt_token_ids": prompt,
                "output_token_ids": output,
                "usage": Usage(prompt_tokens=len(prompt), completion_tokens=len(output), cached_tokens=None),
                "manifest_id": manifest_id,
            }
        )
        pieces = [TextDelta(1, raw[at : at + PIECE], None) for at in range(0, len(raw), PIECE)]
        return ScriptedStream(pieces if token_in else [ToolCallComplete(1, call) for call in calls], done)
