"""Two requests side by side at their first difference: the facts that detectors read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pydantic import JsonValue

from serving.explain.alignment import Edit, Fragment, first_edit, first_fragment
from serving.explain.first_break import FirstBreak, first_break
from serving.explain.place import Segment
from serving.explain.turn import JsonObject, Turn, message_key, reasoning_of


class Change(NamedTuple):
    """One text of a message that became another."""

    message_index: int
    field: str
    stored: str
    sent: str


@dataclass(frozen=True)
class Difference:
    """A request, the earlier one it is held against, and where their tokens part."""

    stored: Turn
    sent: Turn
    broken: FirstBreak

    @cached_property
    def edit(self) -> Edit | None:
        """How the messages changed, the earlier reply counted as one; None where the request only adds some."""
        return first_edit(self.stored.keys, self.sent.keys)

    @property
    def at_edit(self) -> bool:
        """Whether the tokens part no earlier than the messages do: the edit, not the template, is what broke."""
        index = self.broken.sent.message_index
        return self.edit is not None and not self.in_tools and (index is None or index >= self.edit.sent_from)

    @cached_property
    def change(self) -> Change | None:
        """The first text that changed, where one text of one message is all that did in it."""
        edit = self.edit
        if edit is None or edit.removes or edit.inserts or edit.sent_from >= len(self.sent.messages):
            return None
        old, new = self.stored.history[edit.stored_from], self.sent.messages[edit.sent_from]
        if old.get("role") != new.get("role"):
            return None
        texts = [
            Change(edit.sent_from, field, was, now)
            for field, was, now in (
                ("content", text_of(old), text_of(new)),
                ("reasoning", reasoning_of(old) or "", reasoning_of(new) or ""),
            )
            if was != now
        ]
        other = message_key({**old, "content": "", "reasoning": "", "reasoning_content": ""}) != message_key(
            {**new, "content": "", "reasoning": "", "reasoning_content": ""}
        )
        return texts[0] if len(texts) == 1 and not other else None

    @cached_property
    def fragment(self) -> Fragment | None:
        """The first stretch of `change` that became another."""
        return None if self.change is None else first_fragment(self.change.stored, self.change.sent)

    @cached_property
    def appends(self) -> bool:
        """Whether the client sent again all that it had sent, and only added messages."""
        sent = len(self.stored.messages)
        return self.sent.keys[:sent] == self.stored.keys[:sent] and self.same_tools

    @cached_property
    def same_tools(self) -> bool:
        """Equal as JSON values; the order of keys may differ."""
        return self.stored.tools == self.sent.tools

    @property
    def in_reply(self) -> bool:
        """Whether the tokens part inside what was generated."""
        return self.broken.stored.segment is Segment.REPLY

    @property
    def in_tools(self) -> bool:
        """Whether the tokens part inside the tool list of either side."""
        return Segment.TOOL_LIST in (self.broken.stored.segment, self.broken.sent.segment)

    @property
    def in_template(self) -> bool:
        """Whether the template wrote both of the characters that differ."""
        return not self.in_reply and not self.broken.stored.path and not self.broken.sent.path

    @property
    def rendered_here(self) -> bool:
        """Whether both prompts are what this lab's renderer makes of the bodies."""
        return all(turn.rendered is not None and not turn.foreign for turn in (self.stored, self.sent))

    @property
    def one_conversation(self) -> bool:
        """Whether it matters to more than one request: the head differs, or the same conversation goes on."""
        head = self.in_tools or self.broken.sent.role in ("system", "developer")
        resumes = self.edit is not None and self.edit.resumes
        return head or resumes or self.later_turn or (self.fragment is not None and self.fragment.extends)

    @property
    def later_turn(self) -> bool:
        """Whether the request has more messages than the earlier one, of the same roles as far as that goes."""
        stored, sent = self.stored.messages, self.sent.messages
        return len(sent) > len(stored) and all(
            a.get("role") == b.get("role") for a, b in zip(stored, sent, strict=False)
        )


def difference(stored: Turn, sent: Turn, position: int) -> Difference:
    """Hold `sent` against `stored`, whose ids part from token `position` on (both have one there)."""
    return Difference(stored, sent, first_break(sent, stored, position))


def text_of(message: JsonObject) -> str:
    """A message's content as one text; parts are joined by line breaks, as servers do."""
    content: JsonValue = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str))
