"""The renderer: messages and tools to the ids that the server will see, and the item of every token."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from serving.assembler.packet import Message, PacketSpan, ToolSpec
from serving.assembler.renderer import AddedToken, CoarseReason, Rendered, RendererIdentity, TokenSpan
from serving.chat.content_format import detect_content_format
from serving.chat.dialect import DialectName, JsonObject, TemplateTraits, dialect_named
from serving.chat.spans import check_spans, locate, token_spans
from serving.chat.template import ChatTemplate
from serving.chat.tokenizer import ChatTokenizer, Encoded, ShownToken, load_template, refuse_surrogates
from serving.chat.traced import trace
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
    ) -> None:
        """Args: `template_kwargs` is what the request carries as `chat_template_kwargs`
        (`enable_thinking` …); `template_override` replaces the folder's template source.

        Raises: UsageError for a folder without tokenizer or template, a template that does not compile,
        or an unknown dialect.
        """
        self.tokenizer = ChatTokenizer(folder)
        self._dialect = dialect_named(dialect)
        given = self._dialect.keywords(template_kwargs or {})
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
            dialect=self._dialect.name.value,
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
        return self.render_body(
            [message.to_api() for message in messages], [tool.to_api() for tool in tools], spans
        )

    def render_body(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject], spans: Sequence[PacketSpan] = ()
    ) -> Rendered:
        """The same for messages and tools in the API's own form (recorded requests; text parts allowed)."""
        body = _body(messages, tools)
        text = self._text(body)
        encoded = self._encode(text)
        if not spans:
            return _rendered(text, encoded, token_spans(encoded.starts, ()), None)
        check_spans(spans, body)
        traced = self._traced_text(body)
        # Origins never change what is rendered; should an operation of some template prove that wrong, the
        # plain render is the truth and no origin is trusted.
        if traced is None or traced != text:
            return _rendered(text, encoded, token_spans(encoded.starts, ()), CoarseReason.RENDER_DIFFERS)
        located = locate(traced, spans)
        return _rendered(text, encoded, token_spans(encoded.starts, located.spans), located.coarse)

    def render_text(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
        """The prompt as text; same errors as `render`."""
        return self._text(_body([m.to_api() for m in messages], [t.to_api() for t in tools]))

    def show(self, rendered: Rendered) -> list[ShownToken]:
        """Each token of the prompt with its text, added tokens marked."""
        return self.tokenizer.show(rendered.token_ids)

    # The seam for incremental work: conversation n+1 repeats most of n, so whoever caches text or ids of a
    # prefix does it in these two methods, and `render_body` stays as it is.
    def _text(self, body: JsonObject) -> str:
        template, variables = self._variables(body)
        text = template.render(variables)
        refuse_surrogates(text)
        return text

    def _encode(self, text: str) -> Encoded:
        return self.tokenizer.encode(text)

    def _traced_text(self, body: JsonObject) -> str | None:
        template, variables = self._variables(cast(JsonObject, trace(body)))
        try:
            return template.render_traced(variables)
        except UsageError:
            # The plain render went through, so this is a template operation that origins cannot follow; the
            # caller records the fallback.
            return None

    def _variables(self, body: JsonObject) -> tuple[ChatTemplate, dict[str, object]]:
        compiled = self._templates[bool(body["tools"])]
        conversation = self._dialect.conversation(
            cast(list[JsonObject], body["messages"]), cast(list[JsonObject], body["tools"]), compiled.traits
        )
        return compiled.template, {
            **self.tokenizer.named_tokens(),
            **self._keywords,
            "messages": conversation.messages,
            "tools": conversation.tools,
        }


class _Compiled:
    def __init__(self, source: str) -> None:
        self.template = ChatTemplate(source)
        self.traits = TemplateTraits(
            content_format=detect_content_format(self.template.syntax_tree()),
            # vLLM looks for the quoted word, no more.
            has_developer_role='"developer"' in source or "'developer'" in source,
        )


def _body(messages: Sequence[JsonObject], tools: Sequence[JsonObject]) -> JsonObject:
    if not messages:
        raise UsageError("Expected at least one message, got none. A chat prompt needs a message to answer.")
    return {"messages": list(messages), "tools": list(tools)}


def _rendered(
    text: str, encoded: Encoded, spans: tuple[TokenSpan, ...], coarse: CoarseReason | None
) -> Rendered:
    return Rendered(
        token_ids=encoded.ids, text=text, spans=spans, token_offsets=encoded.starts, coarse=coarse
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
