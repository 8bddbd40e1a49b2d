"""Messages as the template is given them, read once: a message that stays the same is not parsed again."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Final, NamedTuple, cast

from serving.assembler.packet import Message
from serving.chat.dialect import Conversation, Dialect, JsonObject, TemplateTraits
from serving.chat.recent import Recent
from serving.chat.traced import trace

CHARACTERS_KEPT: Final = 2**23
"""Of messages, read plain and read with origins: some conversations of a million characters."""

TOOL_LISTS_KEPT: Final = 8

_ENTRY_SIZE: Final = 500
"""What a message costs beside its text, in characters."""


class Body(NamedTuple):
    """Messages and tools in the API's form."""

    messages: list[JsonObject]
    tools: list[JsonObject]
    made_of: tuple[Message, ...] | None = None
    """The records that the messages were made of. None: the body came from outside, where somebody may still
    change it, so nothing of it is kept."""


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


class ReadTools:
    """The tools as the template is given them."""

    def __init__(self, dialect: Dialect, bodies: list[JsonObject]) -> None:
        self._dialect = dialect
        self._bodies = bodies
        self.plain = [dialect.tool(body) for body in bodies]

    @cached_property
    def traced(self) -> list[JsonObject]:
        """The same, each string of which knows its path in the body."""
        given = (cast(JsonObject, trace(body, ("tools", place))) for place, body in enumerate(self._bodies))
        return [self._dialect.tool(body) for body in given]


class ReadBody(NamedTuple):
    """A body that was read."""

    dialect: Dialect
    messages: list[ReadMessage]
    tools: ReadTools
    traits: TemplateTraits

    def plain(self) -> Conversation:
        """What the template is given."""
        return self.dialect.gathered(
            [message.plain for message in self.messages], self.tools.plain, self.traits
        )

    def traced(self) -> Conversation:
        """The same, where each string knows its path in the body."""
        return self.dialect.gathered(
            [message.traced for message in self.messages], self.tools.traced, self.traits
        )


class Reader:
    """A dialect's `conversation`, message by message. Threads may share it.

    Reading is a pure function of the message and its place, and the sandbox in which templates run lets none
    of them change what it is given, so what was read can be handed out again.
    """

    def __init__(self, dialect: Dialect, *, keep: bool) -> None:
        self._dialect = dialect
        self._kept: Recent[_Key, ReadMessage] = Recent(CHARACTERS_KEPT if keep else 0)
        self._kept_tools: Recent[str, ReadTools] = Recent(TOOL_LISTS_KEPT if keep else 0)

    def read(self, body: Body, traits: TemplateTraits) -> ReadBody:
        """The body for a template with these traits, each message and the tools read here or earlier."""
        if body.made_of is None:
            messages = [
                ReadMessage(self._dialect, message, place, traits)
                for place, message in enumerate(body.messages)
            ]
            return ReadBody(self._dialect, messages, ReadTools(self._dialect, body.tools), traits)
        messages = [
            self._message(_Key(made_of, place, traits), body.messages[place])
            for place, made_of in enumerate(body.made_of)
        ]
        return ReadBody(self._dialect, messages, self._tools(body.tools), traits)

    def _tools(self, bodies: list[JsonObject]) -> ReadTools:
        # As JSON, 1 is another value than True, and the order of keys counts, as it does for the template.
        key = json.dumps(bodies)
        if (known := self._kept_tools.get(key)) is not None:
            return known
        read = ReadTools(self._dialect, bodies)
        self._kept_tools.put(key, read)
        return read

    def _message(self, key: _Key, body: JsonObject) -> ReadMessage:
        if (known := self._kept.get(key)) is not None:
            return known
        read = ReadMessage(self._dialect, body, key.place, key.traits)
        self._kept.put(key, read, _size(key.message))
        return read


def _size(message: Message) -> int:
    calls = sum(len(call.arguments) for call in message.tool_calls)
    return _ENTRY_SIZE + len(message.content or "") + len(message.reasoning or "") + calls
