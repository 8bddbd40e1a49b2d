"""The renderer: messages and tools to the ids that the server will see, and the item of every token."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import JsonValue

from serving.assembler.packet import Message, PacketSpan, ToolSpec
from serving.assembler.renderer import AddedToken, CoarseReason, Rendered, RendererIdentity
from serving.chat.content_format import detect_content_format
from serving.chat.dialect import Conversation, DialectName, JsonObject, TemplateTraits, dialect_named
from serving.chat.incremental import encoder_of
from serving.chat.reading import Body, Reader
from serving.chat.rewritten import RewriteWatch
from serving.chat.spans import Located, check_spans, locate, token_spans
from serving.chat.template import ChatTemplate
from serving.chat.tokenizer import ChatTokenizer, ShownToken, load_template, refuse_surrogates
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
    ) -> None:
        """Args: `template_kwargs` is what the request carries as `chat_template_kwargs`
        (`enable_thinking` …); `template_override` replaces the folder's template source; `incremental` takes
        over what earlier renderings have done, which changes no result (`Rendered.reuse` says how much).

        Raises: UsageError for a folder without tokenizer or template, a template that does not compile,
        or an unknown dialect.
        """
        self.tokenizer = ChatTokenizer(folder)
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
        self._watch = (
            RewriteWatch([self._generation_prompt(t) for t in self._templates]) if incremental else None
        )

    @property
    def added_tokens(self) -> tuple[AddedToken, ...]:
        """The tokenizer's added tokens, by text."""
        return self.tokenizer.added

    def render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], spans: Sequence[PacketSpan] = ()
    ) -> Rendered:
        """The prompt for one call, generation prompt included.

        Raises: UsageError when the template refuses the messages, when a span names no place in them, or
        when the text holds an unpaired surrogate.
        """
        body = Body(
            [message.to_api() for message in messages], [tool.to_api() for tool in tools], tuple(messages)
        )
        return self._render(body, spans)

    def render_body(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], spans: Sequence[PacketSpan] = ()
    ) -> Rendered:
        """The same for messages and tools in the API's own form (recorded requests; text parts allowed)."""
        return self._render(Body(list(messages), list(tools)), spans)

    def render_text(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """The prompt as text; same errors as `render`."""
        body = Body([m.to_api() for m in messages], [t.to_api() for t in tools], tuple(messages))
        return self._text(body)

    def show(self, rendered: Rendered) -> list[ShownToken]:
        """Each token of the prompt with its text, added tokens marked."""
        return self.tokenizer.show(rendered.token_ids)

    def _render(self, body: Body, spans: Sequence[PacketSpan]) -> Rendered:
        text = self._text(body)
        encoded, reuse = self._encode(text)
        located = Located((), None)
        if spans:
            check_spans(spans, {"messages": body.messages, "tools": body.tools})
            traced = self._traced_text(body)
            # Origins never change what is rendered; should an operation of some template prove that wrong,
            # the plain render is the truth and no origin is trusted.
            if traced is None or traced != text:
                located = Located((), CoarseReason.RENDER_DIFFERS)
            else:
                located = locate(traced, spans)
                if self._watch is not None:
                    reuse = replace(reuse, rewritten=self._watch.rewritten(body, traced))
        return Rendered(
            token_ids=encoded.ids,
            text=text,
            spans=token_spans(encoded.starts, located.spans),
            token_offsets=encoded.starts,
            coarse=located.coarse,
            reuse=reuse,
        )

    def _text(self, body: Body) -> str:
        template, variables = self._variables(body, traced=False)
        text = template.render(variables)
        refuse_surrogates(text)
        return text

    def _traced_text(self, body: Body) -> str | None:
        template, variables = self._variables(body, traced=True)
        try:
            return template.render_traced(variables)
        except UsageError:
            # The plain render went through, so this is a template operation that origins cannot follow; the
            # caller records the fallback.
            return None

    def _variables(self, body: Body, *, traced: bool) -> tuple[ChatTemplate, dict[str, object]]:
        if not body.messages:
            raise UsageError(
                "Expected at least one message, got none. A chat prompt needs a message to answer."
            )
        compiled = self._templates[bool(body.tools)]
        conversation = self._reader.read(body, compiled.traits, traced=traced)
        return compiled.template, self._given(conversation)

    def _given(self, conversation: Conversation) -> dict[str, object]:
        return {**self.tokenizer.named_tokens(), **self._keywords, **conversation._asdict()}

    def _generation_prompt(self, compiled: _Compiled) -> str | None:
        """What this template puts behind the last message; None where a tiny conversation does not tell."""
        tiny = Body([{"role": "user", "content": "x"}], [])
        given = self._given(self._reader.read(tiny, compiled.traits, traced=False))
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


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
