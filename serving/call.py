"""The one path of every measured call: assemble, render, predict, send, check the ids, compare, record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from serving.assembler import (
    FRAMING,
    AssemblyRequest,
    ContextPolicy,
    Fault,
    HandOff,
    Packet,
    Rendered,
    Renderer,
    TokenSpan,
    assemble,
)
from serving.chat import ChatRenderer, ChatTokenizer, LastRender, ShownToken
from serving.chat.required_call import TAG_PARSER, required_call
from serving.client import (
    ChatRequest,
    Client,
    CompletionRequest,
    Exchange,
    ExchangeStream,
    Request,
    StreamEvent,
    Surface,
)
from serving.errors import InequalityError, UsageError
from serving.explain import FirstBreak, Miss, Turn, explain_miss, turn_of
from serving.models import ModelFolder
from serving.prefix import Prediction, Predictor
from serving.prefix.prediction import Relation
from serving.text import common_prefix


class DecodeOptions(BaseModel):
    """How the model is to answer: the `decode.*` factors of an arm."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    tool_choice: Literal["auto", "none", "required"] | None = None
    """None: not sent, which is `auto` where tools are given."""
    parallel_tool_calls: bool | None = None
    """False: at most one call a message; None: not sent, which is true. Sent where tools are given."""
    choices: tuple[str, ...] = ()
    """The only answers that the server lets the model give (vLLM's `structured_outputs`); none given: any."""
    strict_arguments: bool = False
    """Whether a required call's arguments are held to its tool's schema, which `tool_choice` alone does not do."""


@dataclass(frozen=True)
class MeasuredCall:
    """One call with everything that is known of it from both sides."""

    packet: Packet
    rendered: Rendered
    prediction: Prediction
    exchange: Exchange
    first_break: FirstBreak | None
    """Where the prompt leaves the longest stored one; None where it extends it, or nothing was stored."""
    miss: Miss | None = None
    """The uncached tokens by named cause; None for a call that never reached the engine."""

    @property
    def cached_tokens(self) -> int | None:
        """As the server reports them."""
        return None if self.exchange.usage is None else self.exchange.usage.cached_tokens

    @property
    def ids_agree(self) -> bool | None:
        """Whether the server read the ids rendered here; None when it did not tell."""
        served = self.exchange.prompt_token_ids
        return None if served is None else served == self.rendered.token_ids

    @property
    def prediction_agrees(self) -> bool | None:
        """Whether as many tokens were reused as predicted; None when the server did not tell."""
        return None if self.cached_tokens is None else self.cached_tokens == self.prediction.cached_tokens


class Caller:
    """A served model, the renderer of its template and the running prediction of its cache.

    The prediction is exact while calls run one after another and everything the server gets comes through
    here (under this caller's salts).
    """

    def __init__(
        self,
        client: Client,
        model: ModelFolder,
        *,
        block_size: int,
        num_blocks: int | None = None,
        template_kwargs: Mapping[str, JsonValue] | None = None,
        surface: Surface = Surface.CHAT,
        strict: bool = True,
        predictable: bool = True,
        tokenizer: ChatTokenizer | None = None,
        prompts: Renderer | None = None,
        template: str | None = None,
    ) -> None:
        """Args: `block_size` and `num_blocks` as the server reports them (None: an endless pool);
        `template_kwargs` reach the template on both sides; `strict` raises `InequalityError` where a server
        that tells its ids or cached tokens tells others than expected, or does not tell them at all;
        `predictable` False where others call under the same salt, or at the same time: then ids are compared and
        cached tokens are not; `tokenizer` is the model's own, where it is loaded already; `prompts` renders in
        place of the model's own renderer: on the token-in surface that may be anything that keeps what was sent;
        `template` is the source of another template than the model's, on the token-in surface only.
        """
        if template is not None and surface is Surface.CHAT:
            raise UsageError(
                "A chat server renders with its own template: send another one's ids (token-in)."
            )
        self.client = client
        self.model = model
        self.renderer = ChatRenderer(
            model.path, template_kwargs=template_kwargs, template_override=template, tokenizer=tokenizer
        )
        self._last = LastRender(self.renderer if prompts is None else prompts)
        self.block_size = block_size
        self._template_kwargs = dict(template_kwargs or {})
        self._surface = surface
        self._strict = strict
        self._predictable = predictable
        self._predictor = Predictor(block_size, num_blocks)
        self._stored: list[_Stored] = []
        self._latest: dict[str, int] = {}
        """The last call of every salt, by its place in `_stored`."""
        self._spent: set[str] = set()
        """Salts of calls that failed: what the server kept of them is unknown."""

    def call(
        self,
        request: AssemblyRequest,
        policy: ContextPolicy,
        decode: DecodeOptions,
        *,
        salt: str,
        faults: Sequence[Fault] = (),
    ) -> MeasuredCall | HandOff:
        """Make one measured call; a `HandOff` when the packet does not fit, before anything is sent.

        Raises `InequalityError` (see `strict`). A call that the server or the network failed is returned with
        its error in the exchange; its salt is refused from then on, for what the server kept of it is unknown.
        """
        started = self.start(request, policy, decode, salt=salt, faults=faults)
        return started if isinstance(started, HandOff) else started.finish()

    def start(
        self,
        request: AssemblyRequest,
        policy: ContextPolicy,
        decode: DecodeOptions,
        *,
        salt: str,
        faults: Sequence[Fault] = (),
    ) -> StartedCall | HandOff:
        """The same up to sending; iterate the result for its events, then `finish` it."""
        if salt in self._spent:
            raise UsageError(
                f"A call under the salt {salt!r} failed, so what the server kept of it is unknown: go on under "
                "a new salt."
            )
        packet = assemble(request, policy, self._last, faults)
        if isinstance(packet, HandOff):
            return packet
        rendered = self._last.render(packet.messages, packet.tools, packet.spans)
        return self._send(self._request(packet, rendered, decode, salt), packet, rendered, salt)

    def remember(self, call: MeasuredCall, output_ids: Sequence[int], *, salt: str) -> MeasuredCall:
        """Let the server hold an answer behind a prompt that it has read, as if it had generated these ids.

        A replay asks for one token and goes on with words that are known; the cache of a real run holds those
        words too. All ids but the last are sent behind the prompt: an engine never stores the one it sampled last
        (`stored_tokens`). Raises `UsageError` for fewer than two ids, which leave nothing, and as `call`.
        """
        if len(output_ids) < 2:
            raise UsageError(
                f"An answer of {len(output_ids)} ids leaves nothing in a cache; give at least 2."
            )
        prompt, ids = call.rendered, (*call.rendered.token_ids, *output_ids[:-1])
        answer = TokenSpan(len(prompt.token_ids), len(ids), FRAMING)
        rendered = replace(
            prompt,
            token_ids=ids,
            text=prompt.text + self.renderer.tokenizer.decode(output_ids[:-1]),
            spans=(*prompt.spans, answer),
            token_offsets=(*prompt.token_offsets, *[len(prompt.text)] * (len(output_ids) - 1)),
        )
        body = CompletionRequest(model=self.model.name, prompt=ids, max_tokens=1, cache_salt=salt)
        made = self._send(body, call.packet, rendered, salt).finish()
        if made.exchange.error is None:
            self._stored[-1] = _Stored(call.packet, prompt, tuple(output_ids))
        return made

    def show(self, rendered: Rendered) -> list[ShownToken]:
        """The prompt's tokens with their text, added tokens marked."""
        return self.renderer.show(rendered)

    def _send(self, body: Request, packet: Packet, rendered: Rendered, salt: str) -> StartedCall:
        prediction = self._predictor.predict_next(rendered.token_ids, salt)
        try:
            stream = self.client.stream(body, manifest_id=packet.manifest.manifest_id)
        except BaseException:
            self._predictor.abandon()
            raise
        return StartedCall(self, packet, rendered, prediction, stream, salt)

    def _request(self, packet: Packet, rendered: Rendered, decode: DecodeOptions, salt: str) -> Request:
        grammar = self._grammar(packet, decode)
        extra: dict[str, JsonValue] = {} if grammar is None else {"structured_outputs": grammar}
        if self._surface is Surface.TOKEN_IN:
            return CompletionRequest(
                model=self.model.name,
                prompt=rendered.token_ids,
                max_tokens=decode.max_tokens,
                temperature=decode.temperature,
                seed=decode.seed,
                cache_salt=salt,
                extra=extra,
            )
        choice = decode.tool_choice
        if decode.strict_arguments and choice == "required":
            choice = "auto"  # a server that requires calls itself puts its own grammar in place of this one
        return ChatRequest(
            model=self.model.name,
            messages=tuple(message.to_api() for message in packet.messages),
            tools=tuple(tool.to_api() for tool in packet.tools),
            tool_choice=choice if packet.tools else None,
            parallel_tool_calls=decode.parallel_tool_calls if packet.tools and not grammar else None,
            chat_template_kwargs=self._template_kwargs or None,
            max_tokens=decode.max_tokens,
            temperature=decode.temperature,
            seed=decode.seed,
            cache_salt=salt,
            rendered_tokens=len(rendered.token_ids),
            extra=extra,
        )

    def _grammar(self, packet: Packet, decode: DecodeOptions) -> dict[str, JsonValue] | None:
        """What vLLM's `structured_outputs` holds the answer to; None: what the server does by itself."""
        if decode.choices:
            return {"choice": list(decode.choices)}
        if decode.tool_choice != "required" or not packet.tools:
            return None
        if self._surface is Surface.CHAT and not decode.strict_arguments:
            return None
        if self.model.tool_parser != TAG_PARSER:
            raise UsageError(
                f"Expected a model that writes tool calls in `<tool_call>` tags, for this side requires one, and "
                f"{self.model.name} does not: over the chat surface, with any arguments, the server requires it."
            )
        single = decode.parallel_tool_calls is False
        tag = required_call(packet.tools, single=single, strict=decode.strict_arguments)
        return {"structural_tag": json.dumps(tag)}

    def _finished(self, started: StartedCall, exchange: Exchange) -> MeasuredCall:
        if exchange.error is not None:
            self._abandon(started.salt)
        else:
            self._predictor.record(exchange.output_token_ids or ())
        left = _Stored(started.packet, started.rendered, exchange.output_token_ids or ())
        miss = self._explain(started.prediction, left, self._latest.get(started.salt))
        if exchange.error is None:
            self._latest[started.salt] = len(self._stored)
            self._stored.append(left)
        call = MeasuredCall(
            packet=started.packet,
            rendered=started.rendered,
            prediction=started.prediction,
            exchange=exchange,
            first_break=miss.broken,
            miss=miss,
        )
        if self._strict and exchange.error is None:
            check_equal(call, predictable=self._predictable)
        return call

    def _abandon(self, salt: str) -> None:
        self._predictor.abandon()
        self._spent.add(salt)

    def _explain(self, prediction: Prediction, sent: _Stored, latest: int | None) -> Miss:
        nearest = prediction.nearest
        if nearest is None or nearest.relation is not Relation.DIVERGES:
            return explain_miss(prediction, None, None)
        before = None
        if latest is not None and latest != nearest.index:
            before = self._turn(self._stored[latest])
        return explain_miss(
            prediction, self._turn(sent), self._turn(self._stored[nearest.index]), before=before
        )

    def _turn(self, stored: _Stored) -> Turn:
        return turn_of(
            self.renderer,
            [message.to_api() for message in stored.packet.messages],
            [tool.to_api() for tool in stored.packet.tools],
            rendered=stored.rendered,
            output_ids=stored.output_ids,
            template_kwargs=self._template_kwargs,
        )


@dataclass(frozen=True, slots=True)
class _Stored:
    """What a call left behind, as small as an explanation allows."""

    packet: Packet
    rendered: Rendered
    output_ids: tuple[int, ...]


class StartedCall:
    """A call on its way: its events as they arrive, and the measured call at the end."""

    def __init__(
        self,
        caller: Caller,
        packet: Packet,
        rendered: Rendered,
        prediction: Prediction,
        stream: ExchangeStream,
        salt: str,
    ) -> None:
        self.packet = packet
        self.rendered = rendered
        self.prediction = prediction
        self.salt = salt
        self._caller = caller
        self._stream = stream
        self._measured: MeasuredCall | None = None
        self._cancelled = False

    def __iter__(self) -> Iterator[StreamEvent]:
        return iter(self._stream)

    def finish(self) -> MeasuredCall:
        """Read what is left of the stream, compare both sides, and return the measured call."""
        if self._measured is None:
            try:
                for _ in self._stream:
                    pass
            except BaseException:
                self.cancel()
                raise
            self._measured = self._caller._finished(self, self._stream.exchange)
        return self._measured

    def cancel(self) -> Exchange:
        """Stop the call and keep what arrived; its salt is refused from then on. A finished call stays so."""
        if self._measured is None and not self._cancelled:
            self._cancelled = True
            self._stream.close()
            self._caller._abandon(self.salt)
        return self._stream.exchange


def check_equal(call: MeasuredCall, *, predictable: bool = True) -> None:
    """Raise `InequalityError` unless the server read the rendered ids and, where that can be predicted, reused
    as many of them as predicted.
    """
    ids, served = call.rendered.token_ids, call.exchange.prompt_token_ids
    if served != ids:
        at = common_prefix(ids, served or ())
        raise InequalityError(
            f"Prompt ids of {call.packet.manifest.manifest_id[:12]}, from token {at} on",
            expected=f"{len(ids)} ids with {list(ids[at : at + 8])} there",
            got="none at all" if served is None else f"{len(served)} ids with {list(served[at : at + 8])}",
        )
    if predictable and not call.prediction_agrees:
        reported = call.cached_tokens
        raise InequalityError(
            f"Cached tokens of {call.packet.manifest.manifest_id[:12]}",
            expected=f"{call.prediction.cached_tokens} of {call.prediction.prompt_tokens} as predicted",
            got="none reported" if reported is None else str(reported),
        )
