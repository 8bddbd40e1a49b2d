"""Requests of many shapes for a served model: chats with tool loops, repeats, prefixes, block edges."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from serving.chat import ChatRenderer
from serving.client import ChatRequest, CompletionRequest, Exchange
from serving.prefix import PrefixRequest

Body = dict[str, Any]
_WORDS = (
    "amber", "basin", "cedar", "delta", "ember", "field", "grove", "harbor", "island", "jungle", "kernel",
    "lagoon", "meadow", "nectar",
)  # fmt: skip
_TOOLS: list[Body] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Looks up {name}.",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
        },
    }
    for name in ("stock", "route")
]
_OFF: Body = {"enable_thinking": False}
"""Random weights with thinking on would put everything into reasoning."""


@dataclass(frozen=True)
class Asked:
    """One request, with the ids that it will be read as."""

    request: ChatRequest | CompletionRequest
    ids: tuple[int, ...]
    chat: Chat | None = None

    @property
    def salt(self) -> str | None:
        return self.request.cache_salt

    def stored(self, exchange: Exchange) -> PrefixRequest:
        assert exchange.output_token_ids is not None
        return PrefixRequest(
            prompt_ids=self.ids, output_ids=exchange.output_token_ids, cache_salt=self.request.cache_salt
        )


@dataclass
class Chat:
    """One conversation and what it will say next."""

    salt: str | None
    tools: list[Body]
    messages: list[Body]
    calls: int = 0
    waits: bool = False
    """For an answer that is under way."""
    last: Body = field(default_factory=dict)


class Traffic:
    """A seeded source of requests that learns from the answers, as clients do."""

    def __init__(
        self,
        seed: int,
        renderer: ChatRenderer,
        model: str,
        *,
        block_size: int,
        longest: int,
        salts: tuple[str | None, ...],
        chat_share: float = 0.5,
    ) -> None:
        self._rng = random.Random(seed)
        self._renderer = renderer
        self._model = model
        self._block = block_size
        self._longest = longest
        self._salts = salts
        self._chat_share = chat_share
        self._chats: list[Chat] = []
        self._stored: list[tuple[str | None, tuple[int, ...]]] = []

    def next(self) -> Asked:
        """The next request; the answer goes to `answered` before the same chat speaks again."""
        return self._talk() if self._rng.random() < self._chat_share else self._token_in()

    def answered(self, asked: Asked, exchange: Exchange) -> None:
        assert exchange.output_token_ids is not None
        self._stored.append((asked.salt, asked.ids + exchange.output_token_ids))
        if asked.chat is not None:
            asked.chat.waits = False
            asked.chat.messages.append({"role": "assistant", "content": exchange.text})

    def _token_in(self) -> Asked:
        rng, block = self._rng, self._block
        salt = rng.choice(self._salts)
        earlier = rng.choice(self._stored)[1] if self._stored and rng.random() < 0.8 else ()
        cut = rng.choice([len(earlier), len(earlier) // block * block, rng.randrange(len(earlier) + 1)])
        shape = rng.randrange(5)
        if shape == 0 and earlier:
            ids = earlier[:cut] or earlier  # a repeat, or a prefix of one
        elif shape == 1:
            edge = rng.randrange(1, 4) * block + rng.choice([-1, 0, 1])  # on either side of a block's end
            ids = (earlier + self._ids(edge))[:edge]
        else:
            ids = earlier[:cut] + self._ids(rng.randrange(1, 3 * block))
        ids = ids[: self._longest] or self._ids(1)
        request = CompletionRequest(
            model=self._model, prompt=ids, max_tokens=self._output_length(len(ids)), cache_salt=salt
        )
        return Asked(request, ids)

    def _ids(self, count: int) -> tuple[int, ...]:
        return tuple(self._rng.randrange(1000, 100_000) for _ in range(count))

    def _output_length(self, prompt: int) -> int:
        """Often just enough, or one short, to fill the block that the prompt left open."""
        to_edge = -prompt % self._block + 1
        near = self._rng.choice([to_edge, to_edge + 1])
        return near if near <= 16 and self._rng.random() < 0.4 else self._rng.randrange(1, 6)

    def _talk(self) -> Asked:
        chat = self._chat()
        chat.waits = True
        rendered = self._renderer.render_body(chat.messages, chat.tools)
        request = ChatRequest(
            model=self._model,
            messages=tuple(chat.messages),
            tools=tuple(chat.tools),
            tool_choice="none" if chat.tools else None,
            chat_template_kwargs=_OFF,
            max_tokens=self._output_length(len(rendered.token_ids)),
            cache_salt=chat.salt,
        )
        return Asked(request, rendered.token_ids, chat)

    def _chat(self) -> Chat:
        """A conversation with its next question or tool result; a new one where all are busy or long."""
        rng = self._rng
        free = [chat for chat in self._chats if not chat.waits]
        if free and rng.random() < 0.8:
            chat = rng.choice(free)
            self._go_on(chat)
            if len(self._renderer.render_body(chat.messages, chat.tools).token_ids) <= self._longest:
                return chat
            self._chats.remove(chat)
        chat = Chat(rng.choice(self._salts), _TOOLS if rng.random() < 0.5 else [], [self._system()])
        chat.messages.append({"role": "user", "content": self._text()})
        self._chats.append(chat)
        return chat

    def _go_on(self, chat: Chat) -> None:
        if not chat.tools or self._rng.random() < 0.4:
            chat.messages.append({"role": "user", "content": self._text()})
            return
        # What the random model said is no tool call: the loop is written as an agent would have it.
        count = self._rng.choice([1, 1, 2])
        calls = [self._call(chat.calls + number) for number in range(count)]
        chat.calls += count
        chat.messages[-1] = {**chat.messages[-1], "tool_calls": calls}
        for call in calls:
            chat.messages.append({"role": "tool", "tool_call_id": call["id"], "content": self._text()})

    def _call(self, number: int) -> Body:
        arguments = json.dumps({"word": self._rng.choice(_WORDS)})
        function = {"name": self._rng.choice(_TOOLS)["function"]["name"], "arguments": arguments}
        return {"id": f"call-{number}", "type": "function", "function": function}

    def _system(self) -> Body:
        return {"role": "system", "content": self._rng.choice(["You run a warehouse.", "You plan routes."])}

    def _text(self) -> str:
        return " ".join(self._rng.choice(_WORDS) for _ in range(self._rng.randrange(1, 25)))
