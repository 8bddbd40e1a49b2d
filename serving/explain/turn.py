"""One request as the cache met it: what the client sent, what the server read, what it generated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pydantic import JsonValue

from serving.assembler import Rendered
from serving.chat import ChatRenderer, Outline
from serving.errors import UsageError
from serving.prefix.prediction import stored_tokens

JsonObject = dict[str, JsonValue]


@dataclass(frozen=True)
class Turn:
    """A request with its tokens; build it with `turn_of`."""

    renderer: ChatRenderer = field(repr=False, compare=False)
    messages: tuple[JsonObject, ...]
    """In the API's own form, as the client sent them."""
    tools: tuple[JsonObject, ...]
    prompt_ids: tuple[int, ...]
    prompt_text: str
    output_ids: tuple[int, ...] = ()
    reply: JsonObject | None = None
    """The message that came back, in the API's own form; None: not known."""
    template_kwargs: Mapping[str, JsonValue] = field(default_factory=dict)
    rendered: Rendered | None = None
    """With item spans where the request was assembled here."""

    @cached_property
    def text(self) -> str:
        """Prompt and reply, as the model read and wrote them."""
        return self.prompt_text + self.renderer.tokenizer.decode(self.output_ids)

    @property
    def output_text(self) -> str:
        """What the model wrote."""
        return self.text[len(self.prompt_text) :]

    @property
    def foreign(self) -> bool:
        """Whether the server read other ids than this lab renders."""
        return self.rendered is not None and self.rendered.token_ids != self.prompt_ids

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """Prompt and output ids whose KV the engine kept."""
        every = self.prompt_ids + self.output_ids
        return every[: stored_tokens(len(self.prompt_ids), len(self.output_ids))]

    @cached_property
    def outline(self) -> Outline:
        """Where every character of the prompt comes from."""
        return self.renderer.outline(self.messages, self.tools)

    def outline_to(self, char: int, messages: int) -> Outline:
        """An outline that holds for one character, of the first `messages` alone where these print it alike.

        A difference lies mostly near the head of a long history, and most of the work is its tail.
        """
        if messages >= len(self.messages) or "outline" in self.__dict__:
            return self.outline
        try:
            short = self.renderer.outline(self.messages[:messages], self.tools)
        except UsageError:
            return self.outline  # a template may refuse a history that ends there
        alike = char < short.prompt_start and self.prompt_text.startswith(short.text[: char + 1])
        return short if alike else self.outline

    @cached_property
    def stored_characters(self) -> int:
        """How much of `text` the stored ids spell: all but the last generated token."""
        return len(self.text) - len(self.renderer.tokenizer.decode(self.output_ids[-1:]))

    @cached_property
    def history(self) -> tuple[JsonObject, ...]:
        """The messages, and the reply where it is known: what a next request would begin with."""
        return self.messages if self.reply is None else (*self.messages, self.reply)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """One text a message of `history`, equal for messages that render alike (see `message_key`)."""
        return tuple(message_key(message) for message in self.history)

    def decode(self, start: int, end: int) -> str:
        """The text of tokens [start, end) of `ids`."""
        return self.renderer.tokenizer.decode(self.ids[start:end])


def turn_of(
    renderer: ChatRenderer,
    messages: Sequence[JsonObject],
    tools: Sequence[JsonObject] = (),
    *,
    rendered: Rendered | None = None,
    prompt_ids: tuple[int, ...] | None = None,
    output_ids: Sequence[int] = (),
    reply: JsonObject | None = None,
    template_kwargs: Mapping[str, JsonValue] | None = None,
) -> Turn:
    """Render a request unless it was; `prompt_ids` are the server's own, where they are known.

    Raises: UsageError where the template refuses the messages.
    """
    made = renderer.render_body(messages, tools) if rendered is None else rendered
    foreign = prompt_ids is not None and prompt_ids != made.token_ids
    return Turn(
        renderer=renderer,
        messages=tuple(messages),
        tools=tuple(tools),
        prompt_ids=prompt_ids if foreign and prompt_ids is not None else made.token_ids,
        prompt_text=renderer.tokenizer.decode(prompt_ids) if foreign and prompt_ids else made.text,
        output_ids=tuple(output_ids),
        reply=reply,
        template_kwargs=dict(template_kwargs or {}),
        rendered=made,
    )


def message_key(message: Mapping[str, JsonValue]) -> str:
    """The parts of a message that a template can print, as one text.

    What clients add or leave out without effect (null fields, `refusal`, an empty list of calls) is left out,
    and `content: null` is the empty text that servers make of it.
    """
    printed = {
        "role": message.get("role"),
        "content": message.get("content") or "",
        "reasoning": reasoning_of(message) or "",
        "calls": message.get("tool_calls") or [],
        "answers": message.get("tool_call_id") or "",
        "name": message.get("name") or "",
    }
    return json.dumps(printed, ensure_ascii=False)


def common_messages(earlier: Turn, sent: Turn) -> int:
    """How many different messages of a request an earlier one has too, its reply included."""
    return len(set(sent.keys[: len(sent.messages)]).intersection(earlier.keys))


def reasoning_of(message: Mapping[str, JsonValue]) -> str | None:
    """The reasoning of a message under either of its names; None: it has none."""
    for name in ("reasoning", "reasoning_content"):
        value = message.get(name)
        if isinstance(value, str) and value:
            return value
    return None
