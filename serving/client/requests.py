"""What can be asked of a server, as values."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from serving.client.exchange import Surface
from serving.errors import UsageError

JsonObject = dict[str, JsonValue]


class _Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    temperature: float | None = 0.0
    """0 makes a run repeatable; None leaves it to the model's generation config."""
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None
    cache_salt: str | None = None
    """Separates this request's cached blocks from all others: a fresh salt is a cold start."""
    return_token_ids: bool = True
    """vLLM's extension; switch it off for a server that refuses unknown fields."""
    include_usage: bool = True
    measured: bool = True
    """Whether the numbers count: a measured request is refused what would spoil them. Never sent."""
    extra: JsonObject = {}
    """Further fields of the body, as the server knows them."""

    def _body(self, **specific: JsonValue) -> JsonObject:
        body: JsonObject = {"model": self.model, **specific, "stream": True}
        body |= {
            "temperature": self.temperature,
            "seed": self.seed,
            "stop": None if self.stop is None else list(self.stop),
            "cache_salt": self.cache_salt,
            "return_token_ids": True if self.return_token_ids else None,
            "stream_options": {"include_usage": True} if self.include_usage else None,
        }
        body = {name: value for name, value in body.items() if value is not None}
        if clash := sorted(body.keys() & self.extra.keys()):
            raise UsageError(
                f"Expected only further fields in `extra`, got {', '.join(clash)}: set the request's field."
            )
        return body | self.extra


class ChatRequest(_Request):
    """A conversation for `/v1/chat/completions`; the server renders it with the model's chat template."""

    messages: tuple[JsonObject, ...]
    """In the API's form."""
    tools: tuple[JsonObject, ...] = ()
    tool_choice: Literal["auto", "none", "required"] | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    """False: one call a message at most, in the grammar too where `tool_choice` is `required`."""
    chat_template_kwargs: JsonObject | None = None
    """For the template, such as `{"enable_thinking": False}`."""
    rendered_tokens: int | None = None
    """How long the prompt is, when the caller has rendered it already. Never sent."""

    surface: Literal[Surface.CHAT] = Surface.CHAT

    @property
    def prompt_tokens(self) -> int | None:
        """The prompt's length, as far as it is known before sending."""
        return self.rendered_tokens

    def body(self) -> JsonObject:
        """The JSON body to send."""
        return self._body(
            messages=[dict(message) for message in self.messages],
            tools=[dict(tool) for tool in self.tools] or None,
            tool_choice=self.tool_choice,
            parallel_tool_calls=self.parallel_tool_calls,
            max_tokens=self.max_tokens,
            chat_template_kwargs=self.chat_template_kwargs,
        )


class CompletionRequest(_Request):
    """Token ids for `/v1/completions`: the token-in surface, nothing rendered or rewritten on the server."""

    prompt: tuple[int, ...]

    surface: Literal[Surface.TOKEN_IN] = Surface.TOKEN_IN

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt)

    def body(self) -> JsonObject:
        """The JSON body to send."""
        return self._body(prompt=list(self.prompt), max_tokens=self.max_tokens)


Request = ChatRequest | CompletionRequest
