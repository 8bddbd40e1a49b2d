"""Whether one turn's ids, its output among them, begin the next turn's: proven by rendering both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from serving.chat.content_format import ContentFormat, detect_content_format
from serving.chat.dialect import JsonObject
from serving.chat.survey.conversations import Step
from serving.chat.template import ChatTemplate
from serving.errors import UsageError
from serving.text import common_prefix

Encode = Callable[[str], Sequence[int]]
"""Text to token ids, added tokens recognised."""

_QUOTED = 64
_CONTEXT = 16
_FIXED_CLOCK = "2001-02-03"


class Kept(StrEnum):
    """How much of turn n still begins turn n + 1; the order is from all to nothing."""

    ALL = "all"
    """Prompt and output: nothing has to be computed again."""
    PROMPT = "prompt"
    """The prompt, and not what the model wrote: its output is shown otherwise, or not at all."""
    PART = "part"
    """Not even the prompt: something before its end is shown otherwise now."""
    REFUSED = "refused"
    """The template refuses one of the two turns."""


class Place(StrEnum):
    """Where the first difference lies in turn n."""

    HEAD = "head"
    """Before the first question: system text, tool list."""
    HISTORY = "history"
    GENERATION_PROMPT = "generation prompt"
    """In what the template puts after the last message for the model to go on from."""
    OUTPUT = "output"


class Break(BaseModel):
    """The first difference between turn n and turn n + 1, with what either has there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: Place
    at: int
    """Characters in common before it."""
    before: str
    """The end of what is in common."""
    was: str
    """What turn n goes on with; empty where the template never shows the answer as it was written."""
    now: str


class Proof(BaseModel):
    """What turn n keeps in turn n + 1, in the survey's unit; None where a render was refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kept: Kept
    stored: int | None = None
    """Length of prompt and output, the output's last token left out."""
    shared: int | None = None
    """How much of it begins turn n + 1."""
    not_shown: tuple[str, ...] = ()
    """Texts of the answer, and of what turn n + 1 adds, that turn n + 1 shows nowhere."""
    difference: Break | None = None
    refusal: str | None = None


class TurnRenderer(NamedTuple):
    """One template with what it is always given: the content format that it reads and a clock that stands."""

    template: ChatTemplate
    content_format: ContentFormat
    named_tokens: Mapping[str, str]
    """`bos_token`, `eos_token` …"""

    @classmethod
    def of(cls, source: str, named_tokens: Mapping[str, str]) -> TurnRenderer:
        """Raises: UsageError when the template does not compile."""
        template = ChatTemplate(source)
        return cls(template, detect_content_format(template.syntax_tree()), named_tokens)

    def text(
        self,
        messages: Sequence[JsonObject],
        tools: Sequence[JsonObject] = (),
        *,
        generation_prompt: bool = True,
        clock: str = _FIXED_CLOCK,
        given: Mapping[str, object] | None = None,
    ) -> str:
        """The prompt; `given` goes to the template beside it. Raises: UsageError when the template refuses."""
        return self.template.render(
            {
                **self.named_tokens,
                "strftime_now": lambda _format: clock,
                **(given or {}),
                "messages": [self._content(message) for message in messages],
                "tools": list(tools) or None,
                "documents": None,
                "add_generation_prompt": generation_prompt,
            }
        )

    def _content(self, message: JsonObject) -> JsonObject:
        content = message["content"]
        if self.content_format is ContentFormat.STRING or message["role"] == "tool" or content is None:
            return message
        return {**message, "content": [{"type": "text", "text": content}]}


def prove(renderer: TurnRenderer, step: Step, switches: Mapping[str, bool], encode: Encode | None) -> Proof:
    """Render turn n, its answer, and turn n + 1, and compare them: as ids, or as text without a tokenizer.

    The output of turn n is what the template itself writes for the answer while that is the last message,
    without its last token: an engine samples that one and never stores it. Where the template does not show
    all of the answer even then, the output cannot be known, and then turn n + 1 cannot begin with it either.
    """
    try:
        prompt = renderer.text(step.messages, step.tools, given=switches)
        following = renderer.text(step.following, step.following_tools, given=switches)
    except UsageError as error:
        return Proof(kept=Kept.REFUSED, refusal=str(error))
    output = _output(renderer, step, switches, prompt)
    measure: Callable[[str], Sequence[int]] = encode or (lambda text: [ord(char) for char in text])
    prompt_ids, stored = measure(prompt), [*measure(prompt), *measure(output or "")]
    shared = common_prefix(stored, measure(following))
    shown = {mark: mark in following for mark in (*step.answer.marks, *step.added_texts())}
    if shared < len(prompt_ids):
        kept = Kept.PART
    elif output is None or shared < len(stored) or not all(shown[mark] for mark in step.answer.marks):
        kept = Kept.PROMPT
    else:
        kept = Kept.ALL
    difference = None
    if kept is not Kept.ALL:
        difference = _difference(renderer, step, switches, prompt, prompt + (output or ""), following)
    return Proof(
        kept=kept,
        stored=len(stored),
        shared=shared,
        not_shown=tuple(mark for mark, is_shown in shown.items() if not is_shown),
        difference=difference,
    )


_LAST_TOKEN = re.compile(r"(<[^<>\s]+>|\[[^\[\]\s]+\])$")


def _output(renderer: TurnRenderer, step: Step, switches: Mapping[str, bool], prompt: str) -> str | None:
    messages = [*step.messages, step.answer.message]
    try:
        whole = renderer.text(messages, step.tools, generation_prompt=False, given=switches)
    except UsageError:
        return None  # a template that refuses an answer at the end; what follows shows what became of it
    written = whole[len(prompt) :]
    if not whole.startswith(prompt) or any(mark not in written for mark in step.answer.marks):
        return None
    # A line break after the end of turn is the template's, not the model's.
    return _LAST_TOKEN.sub("", written.rstrip())


def _difference(
    renderer: TurnRenderer,
    step: Step,
    switches: Mapping[str, bool],
    prompt: str,
    stored: str,
    following: str,
) -> Break:
    at = common_prefix(stored, following)
    return Break(
        place=_place(renderer, step, switches, prompt, at),
        at=at,
        before=stored[max(at - _CONTEXT, 0) : at],
        was=stored[at : at + _QUOTED],
        now=following[at : at + _QUOTED],
    )


def _place(renderer: TurnRenderer, step: Step, switches: Mapping[str, bool], prompt: str, at: int) -> Place:
    if at >= len(prompt):
        return Place.OUTPUT
    without = renderer.text(step.messages, step.tools, generation_prompt=False, given=switches)
    if at >= common_prefix(without, prompt):
        return Place.GENERATION_PROMPT
    question = next(str(message["content"]) for message in step.messages if message["role"] == "user")
    return Place.HEAD if at <= prompt.find(question) else Place.HISTORY
