r"""Text that must not act: a model's added tokens and the assembler's own tags, made inert and readable back.

A server turns `<|im_end|>` in a message into the token that ends a message, whoever wrote it. A backslash after
its first character (`<\|im_end|>`) leaves the words and takes the power. The step is a bijection: text that
already looks so gets one more backslash, and `restore` takes one away, so no record is needed to undo it; the
manifest counts what was changed all the same.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import JsonValue

from serving.assembler.draft import Draft, LocalSpan
from serving.assembler.messages import Message, ToolCall, item_of
from serving.assembler.renderer import AddedToken

MARK: Final = "\\"
"""Printable ASCII: no normaliser of a tokenizer removes it, as some remove zero-width characters."""

OWN_TAGS: Final = (
    AddedToken("<agent_status>", special=True),
    AddedToken("</agent_status>", special=True),
    AddedToken("<tool_response>", special=False),
    AddedToken("</tool_response>", special=False),
)
"""Tags that the layout or a template writes around text, and that text must not open or close itself; a bar is
never a model's own words."""

_SHORTEST: Final = 3
"""Shorter added tokens (spaces, line breaks, single signs) are text like any other and delimit nothing."""


class Neutraliser:
    """Makes the marks of one model inert; equal token lists give equal results.

    Text of others loses all of them. A model's own words lose the special ones only (control tokens, which end
    generation and so were never its own): what it could write as one token goes back as that token, or every
    turn would break the prefix at its own output.
    """

    def __init__(self, added_tokens: Iterable[AddedToken] = ()) -> None:
        marks = {*added_tokens, *OWN_TAGS}
        usable = [mark for mark in marks if len(mark.text) >= _SHORTEST and not mark.text.isspace()]
        self._all = _Marks([mark.text for mark in usable])
        self._special = _Marks([mark.text for mark in usable if mark.special])

    def text(self, text: str, *, own_words: bool = False) -> str:
        """`text` without a live mark."""
        return self._of(own_words).neutralised(text)

    def message(self, message: Message) -> Message:
        """One turn's message, the same object where nothing in it was live.

        What an assistant message holds are a model's own words; ids of calls are so wherever they stand.
        """
        own = message.role == "assistant"
        texts = {"content": own, "reasoning": own, "name": own, "tool_call_id": True}
        changed: dict[str, object] = {}
        for name, own_words in texts.items():
            text = getattr(message, name)
            if text and (new := self.text(text, own_words=own_words)) != text:
                changed[name] = new
        calls = tuple(self._call(call) for call in message.tool_calls)
        if calls != message.tool_calls:
            changed["tool_calls"] = calls
        return message.model_copy(update=changed) if changed else message

    def arguments(self, arguments: str) -> str:
        """Tool arguments, a model's own words, as the JSON text that goes back.

        A server parses them, so a mark written with escapes (`\\u003c|im_end|>`) is found too. Arguments
        without a mark keep their bytes; others are written anew.
        """
        if not self._special.may_occur_in(arguments) and MARK not in arguments:
            return arguments
        try:
            value: JsonValue = json.loads(arguments)
        except ValueError:
            return self._special.neutralised(arguments)
        changed = self._json(value)
        return arguments if changed == value else json.dumps(changed, ensure_ascii=False)

    def restore(self, text: str) -> str:
        """The inverse of `text` for the words of others."""
        return self._all.restored(text)

    def inert(self, text: str, *, own_words: bool = False) -> Counter[str]:
        """The marks that `text`, a result of this object, shows inert, and how often each."""
        return self._of(own_words).inert(text)

    def _call(self, call: ToolCall) -> ToolCall:
        call_id, name = self.text(call.id, own_words=True), self.text(call.name, own_words=True)
        arguments = self.arguments(call.arguments)
        if (call_id, name, arguments) == (call.id, call.name, call.arguments):
            return call
        return ToolCall(id=call_id, name=name, arguments=arguments)

    def _of(self, own_words: bool) -> _Marks:
        return self._special if own_words else self._all

    def _json(self, value: JsonValue) -> JsonValue:
        match value:
            case str():
                return self._special.neutralised(value)
            case list():
                return [self._json(part) for part in value]
            case dict():
                return {self._special.neutralised(key): self._json(part) for key, part in value.items()}
            case _:
                return value


class _Marks:
    def __init__(self, texts: Sequence[str]) -> None:
        by_first: dict[str, list[str]] = {}
        for text in sorted(texts, key=lambda text: (-len(text), text)):
            by_first.setdefault(text[0], []).append(re.escape(text[1:]))
        self._firsts = tuple(by_first)
        mark = re.escape(MARK)
        groups = (
            f"{re.escape(first)}{mark}*(?:{'|'.join(rests)})" for first, rests in sorted(by_first.items())
        )
        # Looking ahead finds marks that begin inside other marks as well.
        self._at = re.compile(f"(?=({'|'.join(groups)}))") if by_first else None

    def may_occur_in(self, text: str) -> bool:
        for first in self._firsts:  # noqa: SIM110 - asked of every string of every call: twice as fast as any()
            if first in text:
                return True
        return False

    def neutralised(self, text: str) -> str:
        if self._at is None or not self.may_occur_in(text):
            return text
        pieces: list[str] = []
        reached = 0
        for found in self._at.finditer(text):
            pieces += (text[reached : found.start() + 1], MARK)
            reached = found.start() + 1
        return "".join((*pieces, text[reached:])) if pieces else text

    def restored(self, text: str) -> str:
        if self._at is None:
            return text
        # From the end: a mark inside another is whole again before the outer one is looked at.
        for place in range(len(text) - 1, -1, -1):
            if (
                text[place] in self._firsts
                and text[place + 1 : place + 2] == MARK
                and self._at.match(text, place)
            ):
                text = text[: place + 1] + text[place + 2 :]
        return text

    def inert(self, text: str) -> Counter[str]:
        if self._at is None or MARK not in text:
            return Counter()
        return Counter(
            found[1].replace(MARK, "") for found in self._at.finditer(text) if found[1][1:].startswith(MARK)
        )


def inert_marks(draft: Draft, neutraliser: Neutraliser) -> dict[str, Counter[str]]:
    """For every item in the messages of a finished layout, the marks that it shows inert."""
    marks: dict[str, Counter[str]] = {}
    for message in draft.messages:
        own = message.message.role == "assistant"
        for span in message.spans:
            for text in _texts(message.message, span):
                if MARK in text and (found := neutraliser.inert(text, own_words=own)):
                    marks.setdefault(item_of(span.item_id), Counter()).update(found)
    return marks


def _texts(message: Message, span: LocalSpan) -> tuple[str, ...]:
    name = span.path[0]
    if name == "tool_calls" and isinstance(span.path[1], int):
        call = message.tool_calls[span.path[1]]
        return (call.id, call.name, call.arguments)
    return (str(getattr(message, str(name)))[span.start : span.end],)
