"""Messages as the template is given them, read once: a message that stays the same is not parsed again."""

from __future__ import annotations

from functools import cached_property
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
    """All that the read form of a message depends on; its place is named by origins."""

    message: Message
    place: int
    traits: TemplateTraits


class ReadMessage:
    """A message as the template is given it; origins are added when they are first asked for."""

    def __init__(self, dialect: Dialect, body: JsonObject, place: int, traits: TemplateTraits) -> None:
        self._dialect = dialect
        self._body = body
        self._place = place
        self._traits = traits
        self.plain = dialect.message(body, traits)

    @cached_property
    def traced(self) -> JsonObject:
        """The same, each string of which knows its path in the body."""
        given = cast(JsonObject, trace(self._body, ("messages", self._place)))
        return self._dialect.message(given, self._traits)


class ReadBody(NamedTuple):
    """A body whose messages were read."""

    dialect: Dialect
    messages: list[ReadMessage]
    tools: list[JsonObject]
    traits: TemplateTraits

    def plain(self) -> Conversation:
        """What the template is given."""
        return self.dialect.gathered([message.plain for message in self.messages], self.tools, self.traits)

    def traced(self) -> Conversation:
        """The same, where each string knows its path in the body."""
        tools = [cast(JsonObject, trace(tool, ("tools", index))) for index, tool in enumerate(self.tools)]
        return self.dialect.gathered([message.traced for message in self.messages], tools, self.traits)


class Reader:
    """A dialect's `conversation`, message by message. Threads may share it.

    Reading is a pure function of the message and its place, and the sandbox in which templates run lets none
    of them change what it is given, so what was read can be handed out again.
    """

    def __init__(self, dialect: Dialect, *, keep: bool) -> None:
        self._dialect = dialect
        self._kept: Recent[_Key, ReadMessage] = Recent(CHARACTERS_KEPT if keep else 0)

    def read(self, body: Body, traits: TemplateTraits) -> ReadBody:
        """The body for a template with these traits, each message read here or earlier."""
        if body.made_of is None:
            read = [
                ReadMessage(self._dialect, message, place, traits)
                for place, message in enumerate(body.messages)
            ]
        else:
            read = [
                self._message(_Key(made_of, place, traits), body.messages[place])
                for place, made_of in enumerate(body.made_of)
            ]
        return ReadBody(self._dialect, read, body.tools, traits)

    def _message(self, key: _Key, body: JsonObject) -> ReadMessage:
        if (known := self._kept.get(key)) is not None:
            return known
        read = ReadMessage(self._dialect, body, key.place, key.traits)
        self._kept.put(key, read, _size(key.message))
        return read


def _size(message: Message) -> int:
    calls = sum(len(call.arguments) for call in message.tool_calls)
    return _ENTRY_SIZE + len(message.content or "") + len(message.reasoning or "") + calls
