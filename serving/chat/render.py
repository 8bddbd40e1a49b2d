"""The renderer: messages and tools to the ids that the server will see, and the item of every token."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import JsonValue

from serving.assembler.kinds import Carrier
from serving.assembler.packet import Message, PacketSpan, ToolSpec
from serving.assembler.renderer import AddedToken, CoarseReason, Rendered, RendererIdentity
from serving.chat.carrier import best_carrier
from serving.chat.content_format import detect_content_format
from serving.chat.dialect import Conversation, DialectName, JsonObject, TemplateTraits, dialect_named
from serving.chat.incremental import encoder_of
from serving.chat.outline import Outline, origins_in
from serving.chat.reading import Body, ReadBody, Reader
from serving.chat.rewritten import RewriteWatch
from serving.chat.spans import Located, check_spans, locate, token_spans
from serving.chat.template import ChatTemplate
from serving.chat.tokenizer import ChatTokenizer, ShownToken, load_template, refuse_surrogates
from serving.chat.traced import runs_of
from serving.errors import UsageError


class ChatRenderer:
    """The assembler's `Renderer` over a model folder's own template and tokenizer.

    The ids serve both surfaces: with the `vllm-0.32` dialect they are what `/v1/chat/completions` makes of
    the same messages and tools (chat), and sent to `/v1/completions` they are the prompt itself (token-in).
    """

    def __init__(
        self,
        folder: Path,
        *,
        dialect: str = DialectName.VLLM_0_32,
        template_kwargs: Mapping[str, JsonValue] | None = None,
        add_generation_prompt: bool = True,
        template_override: str | None = None,
        incremental: bool = True,
        tokenizer: ChatTokenizer | None = None,
    ) -> None:
        """Args: `template_kwargs` is what the request carries as `chat_template_kwargs`
        (`enable_thinking` …); `template_override` replaces the folder's template source; `incremental` takes
        over what earlier renderings have done, which changes no result (`Rendered.reuse` says how much);
        `tokenizer` is the folder's own, where it is loaded already.

        Raises: UsageError for a folder without tokenizer or template, a template that does not compile,
        or an unknown dialect.
        """
        self.tokenizer = ChatTokenizer(folder) if tokenizer is None else tokenizer
        self.added_tokens: tuple[AddedToken, ...] = self.tokenizer.added
        chosen = dialect_named(dialect)
        given = chosen.keywords(template_kwargs or {})
        self._keywords: dict[str, JsonValue] = {
            "documents": None,
            **given,
            "add_generation_prompt": add_generation_prompt,
        }
        sources = [
            template_override or load_template(folder, self.tokenizer.config, with_tools=with_tools)
            for with_tools in (False, True)
        ]
        bare = _Compiled(sources[0])
        # Most models have one template; a second is compiled only where tools choose another.
        self._templates = (bare, bare if sources[0] == sources[1] else _Compiled(sources[1]))
        self.identity = RendererIdentity(
            template_sha256=_sha256("\x00".join(dict.fromkeys(sources))),
            tokenizer_sha256=self.tokenizer.sha256,
            kwargs_sha256=_sha256(
                json.dumps([self._keywords, self.tokenizer.named_tokens()], sort_keys=True)
            ),
            dialect=chosen.name.value,
        )
        self._reader = Reader(chosen, keep=incremental)
        self._encode = encoder_of(self.tokenizer, incremental=incremental)
        self._generation_prompts = [self._generation_prompt(compiled) for compiled in self._templates]
        self._watch = RewriteWatch(self._generation_prompts) if incremental else None

    @functools.cached_property
    def carrier(self) -> Carrier:
        """The carrier of dynamic text that this template gets on with (`carrier.py`)."""
        return best_carrier(self.render_text)

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], spans: Sequence[PacketSpan] = ()
    ) -> Rendered:
        """The prompt for one call, generation prompt included.

        Raises: UsageError when the template refuses the messages, when a span names no place in them, or
        when the text holds an unpaired surrogate.
        """
        return self._render(_body(messages, tools), spans)

    def render_body(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], spans: Sequence[PacketSpan] = ()
    ) -> Rendered:
        """The same for messages and tools in the API's own form (recorded requests; text parts allowed)."""
        return self._render(Body(list(messages), list(tools)), spans)

    def render_text(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """The prompt as text; same errors as `render`."""
        return self._text(*self._read(_body(messages, tools)))

    def show(self, rendered: Rendered) -> list[ShownToken]:
        """Each token of the prompt with its text, added tokens marked."""
        return self.tokenizer.show(rendered.token_ids)

    def outline(self, messages: Sequence[JsonObject], tools: Sequence[JsonObject]) -> Outline:
        """The prompt's text with the origin of every character; same errors as `render_body`."""
        compiled, read = self._read(Body(list(messages), list(tools)))
        text = self._text(compiled, read)
        traced = self._traced_text(compiled, read)
        origins = origins_in(traced) if traced is not None and traced == text else ()
        return Outline(text=text, origins=origins, prompt_start=self._prompt_start(compiled, read, text))

    def _prompt_start(self, compiled: _Compiled, read: ReadBody, text: str) -> int:
        usual = self._generation_prompts[bool(read.tools)]
        if usual and text.endswith(usual):
            return len(text) - len(usual)
        try:
            history = compiled.template.render({**self._given(read.plain()), "add_generation_prompt": False})
        except UsageError:
            return len(text)  # a template that cannot print this history alone has no separate prompt
        return len(history) if text.startswith(history) else len(text)

    def _render(self, body: Body, spans: Sequence[PacketSpan]) -> Rendered:
        compiled, read = self._read(body)
        text = self._text(compiled, read)
        encoded, reuse = self._encode(text)
        located = Located((), None)
        if spans:
            check_spans(spans, {"messages": body.messages, "tools": body.tools})
            traced = self._traced_text(compiled, read)
            # Origins never change what is rendered; should an operation of some template prove that wrong,
            # the plain render is the truth and no origin is trusted.
            if traced is None or traced != text:
                located = Located((), CoarseReason.RENDER_DIFFERS)
            else:
                located = locate(traced, spans)
                if self._watch is not None and body.made_of is not None:
                    reuse = replace(reuse, rewritten=self._watch.rewritten(body, text, runs_of(traced)))
        return Rendered(
            token_ids=encoded.ids,
            text=text,
            spans=token_spans(encoded.starts, located.spans),
            token_offsets=encoded.starts,
            coarse=located.coarse,
            reuse=reuse,
        )

    def _read(self, body: Body) -> tuple[_Compiled, ReadBody]:
        if not body.messages:
            raise UsageError(
                "Expected at least one message, got none. A chat prompt needs a message to answer."
            )
        compiled = self._templates[bool(body.tools)]
        return compiled, self._reader.read(body, compiled.traits)

    def _text(self, compiled: _Compiled, read: ReadBody) -> str:
        text = compiled.template.render(self._given(read.plain()))
        refuse_surrogates(text)
        return text

    def _traced_text(self, compiled: _Compiled, read: ReadBody) -> str | None:
        try:
            return compiled.template.render_traced(self._given(read.traced()))
        except UsageError:
            # The plain render went through, so this is a template operation that origins cannot follow; the
            # caller records the fallback.
            return None

    def _given(self, conversation: Conversation) -> dict[str, object]:
        return {**self.tokenizer.named_tokens(), **self._keywords, **conversation._asdict()}

    def _generation_prompt(self, compiled: _Compiled) -> str | None:
        """What this template puts behind the last message; None where a tiny conversation does not tell."""
        tiny = Body([{"role": "user", "content": "x"}], [])
        given = self._given(self._reader.read(tiny, compiled.traits).plain())
        try:
            ended = compiled.template.render({**given, "add_generation_prompt": False})
            whole = compiled.template.render(given)
        except UsageError:
            return None
        return whole.removeprefix(ended) if whole.startswith(ended) else None


class _Compiled:
    def __init__(self, source: str) -> None:
        self.template = ChatTemplate(source)
        self.traits = TemplateTraits(
            content_format=detect_content_format(self.template.syntax_tree()),
            # vLLM looks for the quoted word, no more.
            has_developer_role='"developer"' in source or "'developer'" in source,
        )


def _body(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Body:
    return Body(
        [message.to_api() for message in messages], [tool.to_api() for tool in tools], tuple(messages)
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
