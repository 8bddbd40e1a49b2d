"""Messages as the template is given them, read once: a message that stays the same is not parsed again."""

from __future__ import annotations

from typing import Final, NamedTuple, cast

from serving.assembler.packet import Message
from serving.chat.dialect import Conversation, Dialect, JsonObject, TemplateTraits
from serving.chat.recent import Recent
from serving.chat.traced import trace

CHARACTERS_KEPT: Final = 2**23
"""Of messages, read plain and read with origins: some conversations of a million characters."""

_ENTRY_SIZE: Final = 500
"""What a message costs beside its text, in characters."""


class Body(NamedTuple):
    """Messages and tools in the API's form, and what the messages were made of, where that is known."""

    messages: list[JsonObject]
    tools: list[JsonObject]
    made_of: tuple[Message, ...] | None = None


class _Key(NamedTuple):
    """All that the read form of a message depends on."""

    message: Message
    place: int | None
    """The index, where origins are wanted: they name it."""
    traits: TemplateTraits


class Reader:
    """A dialect's `conversation` over bodies, with or without origins. Threads may share it.

    Reading is a pure function of the message (with origins: and of its place), and the sandbox in which
    templates run lets none of them change what it is given, so what was read can be handed out again.
    """

    def __init__(self, dialect: Dialect, *, keep: bool) -> None:
        self._dialect = dialect
        self._kept: Recent[_Key, JsonObject] = Recent(CHARACTERS_KEPT if keep else 0)

    def read(self, body: Body, traits: TemplateTraits, *, traced: bool) -> Conversation:
        """What the template is given; `traced`: each string knows its path in the body."""
        tools = body.tools
        if traced:
            tools = [cast(JsonObject, trace(tool, ("tools", index))) for index, tool in enumerate(tools)]
        messages = [self._message(body, index, traits, traced=traced) for index in range(len(body.messages))]
        return Conversation(
            self._dialect.together(messages, traits), [self._dialect.tool(tool) for tool in tools] or None
        )

    def _message(self, body: Body, index: int, traits: TemplateTraits, *, traced: bool) -> JsonObject:
        key = None if body.made_of is None else _Key(body.made_of[index], index if traced else None, traits)
        if key is not None and (known := self._kept.get(key)) is not None:
            return known
        given = body.messages[index]
        if traced:
            given = cast(JsonObject, trace(given, ("messages", index)))
        read = self._dialect.message(given, traits)
        if key is not None:
            self._kept.put(key, read, _size(key.message))
        return read


def _size(message: Message) -> int:
    calls = sum(len(call.arguments) for call in message.tool_calls)
    return _ENTRY_SIZE + len(message.content or "") + len(message.reasoning or "") + calls
