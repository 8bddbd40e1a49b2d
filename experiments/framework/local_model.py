"""A model in this process as a study's target: it reads ids, answers greedily, and shows its attention.

A served engine does not hand out its attention, so studies of attention run the model with transformers here, in
float32. Nothing of it is a latency: no batch, no compiled kernel, and of the prompt before only whole pieces are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from pydantic import JsonValue

from experiments.framework.provenance import machine_facts, model_facts
from experiments.framework.study import Serve, Served
from serving.assembler import Packet
from serving.chat import ChatRenderer
from serving.client import Exchange, Surface
from serving.client.exchange import Timings, Usage
from serving.engine.machine import inspect_machine
from serving.errors import LabError
from serving.models import ModelFolder, ensure
from serving.prefix.history import common_prefix
from serving.prefix.prediction import hit_tokens, id_array
from serving.progress import Progress, Silent

if TYPE_CHECKING:
    import torch
    from transformers import DynamicCache

    from serving.attention import Capture, CaptureOptions, Segments
    from serving.attention.model import LoadedModel


PIECE: Final = 128
"""Tokens that are read at once. Pieces begin at multiples of it, so a prompt gives the same bits whether its first
pieces were read for it or are left from the prompt before."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a constrained answer comes to: the likeliest of the texts that were allowed."""

    text: str
    log_probabilities: Mapping[str, float]
    """Of every text, as the sum over its tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class LocalModel:
    """Weights, tokenizer and template of one folder, ready to read."""

    folder: ModelFolder
    loaded: LoadedModel
    renderer: ChatRenderer
    ends: frozenset[int]
    """Tokens that end a turn."""
    _last: list[ReadPrompt] = field(default_factory=list)
    """The prompt whose cache is held, if any."""

    def count(self, text: str) -> int:
        """Tokens of a text on its own."""
        return len(self.renderer.tokenizer.encode(text).ids)

    def text(self, token_ids: Sequence[int]) -> str:
        """What an answer says, without the tokens that only mark its end."""
        return self.renderer.tokenizer.decode([one for one in token_ids if one not in self.ends])

    def read(self, prompt: Sequence[int]) -> ReadPrompt:
        """Read a prompt once; ask it for as many answers and choices as you like, until the next one is read.

        Whole pieces that the prompt before began with as well are not read again. Raises: LabError for no token.
        """
        from transformers import DynamicCache

        ids = tuple(prompt)
        if not ids:
            raise LabError("A prompt has at least one token, got none.")
        last = self._last.pop() if self._last else None
        held = 0 if last is None else last.beginning_of(ids)
        if last is not None and held:
            cache = last.cache
            _shorten(cache, held)
        else:
            cache = DynamicCache(config=self.loaded.model.config)
        for start in range(held, len(ids), PIECE):
            scores = self._next(ids[start : start + PIECE], cache)
        read = ReadPrompt(self, ids, cache, scores)
        self._last.append(read)
        return read

    def capture(
        self,
        token_ids: Sequence[int],
        segments: Segments,
        options: CaptureOptions,
        read: ReadPrompt | None = None,
    ) -> Capture:
        """The attention over prompt and answer; same errors as `serving.attention.capture`.

        What `read` holds of the prompt before the first chosen row is not read again.
        """
        from serving.attention.finish import to_capture
        from serving.attention.model import head_shape
        from serving.attention.plan import make_plan

        plan = make_plan(head_shape(self.loaded.model), segments, options)
        if read is None:
            arrays = self.loaded.run(plan, token_ids, None)
        else:
            with read.only(min(options.chosen, default=0)) as cache:
                arrays = self.loaded.run(plan, token_ids, None, cache)
        pieces = [token.piece for token in self.renderer.tokenizer.show(token_ids)]
        return to_capture(plan, arrays, self.loaded.identity, token_ids, pieces)

    def _next(self, token_ids: Sequence[int], cache: DynamicCache) -> torch.Tensor:
        """[vocabulary]: scores of the token after these, which the cache then holds too."""
        import torch

        with torch.inference_mode():
            ids = torch.tensor([list(token_ids)])
            out = self.loaded.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            scores: torch.Tensor = out.logits[0, -1].float()
        return scores


@dataclass(frozen=True, slots=True, eq=False)
class ReadPrompt:
    """A prompt in the cache, and the scores of what comes after it."""

    model: LocalModel
    prompt: tuple[int, ...]
    cache: DynamicCache
    scores: torch.Tensor
    """[vocabulary]."""

    def beginning_of(self, other: Sequence[int]) -> int:
        """How many tokens another prompt, which has at least one more, begins with: whole pieces."""
        shared = common_prefix(id_array(self.prompt), id_array(tuple(other)))
        return hit_tokens(shared, len(other), PIECE)

    def answer(self, max_tokens: int) -> tuple[int, ...]:
        """The likeliest next token, again and again, up to and with the token that ends a turn."""
        self._check()
        found: list[int] = []
        scores = self.scores
        while len(found) < max_tokens:
            found.append(int(scores.argmax()))
            if found[-1] in self.model.ends or len(found) == max_tokens:
                break
            scores = self.model._next(found[-1:], self.cache)
        self._forget()
        return tuple(found)

    def choose(self, texts: Sequence[str]) -> Choice:
        """Which of `texts` the model is likeliest to write next; equal likelihoods go to the first."""
        self._check()
        totals = {}
        for text in texts:
            ids = self.model.renderer.tokenizer.encode(text).ids
            if not ids:
                raise LabError("A choice is a text of at least one token, got an empty one.")
            scores, total = self.scores, 0.0
            for place, token in enumerate(ids):
                total += float(scores.log_softmax(-1)[token])
                if place + 1 < len(ids):
                    scores = self.model._next([token], self.cache)
            self._forget()
            totals[text] = total
        return Choice(max(totals, key=lambda text: totals[text]), totals)

    @contextmanager
    def only(self, tokens: int) -> Iterator[DynamicCache]:
        """The cache with at most the first `tokens` of the prompt; afterwards with all of it again.

        Whoever takes it reads on with the prompt's own tokens, and at least to its end; where that fails, the
        cache is nobody's any more.
        """
        self._check()
        self.model._last.clear()
        _shorten(self.cache, tokens)
        yield self.cache
        self._forget()
        self.model._last.append(self)

    def _check(self) -> None:
        if self.model._last != [self]:
            raise LabError(
                "Another prompt was read since, and has taken over the cache; read this one again."
            )

    def _forget(self) -> None:
        """Take what came after the prompt out of the cache."""
        _shorten(self.cache, len(self.prompt))


def _shorten(cache: DynamicCache, tokens: int) -> None:
    """Take all but the first `tokens` out of a cache; one that holds no more stays as it is."""
    if (beyond := cache.get_seq_length() - tokens) > 0:
        cache.crop(-beyond)


def load_model(progress: Progress | None = None) -> Serve[LocalModel]:
    """Give the function that loads what `engine.model` names."""
    shown = progress or Silent()

    @contextmanager
    def serve(engine: Mapping[str, JsonValue]) -> Iterator[Served[LocalModel]]:
        folder = ensure(str(engine["engine.model"]), progress=shown)
        shown.begin(f"load {folder.name}")
        from serving.attention.model import load

        loaded = load(folder)
        shown.end()
        renderer = ChatRenderer(folder.path)
        model = LocalModel(folder, loaded, renderer, end_tokens(loaded, renderer))
        yield Served(target=model, environment=describe(folder))

    return serve


def end_tokens(loaded: LoadedModel, renderer: ChatRenderer) -> frozenset[int]:
    """The tokens that end a turn: the tokenizer's, and those that the model's configuration lists."""
    named = renderer.tokenizer.named_tokens().get("eos_token", "")
    marked = renderer.tokenizer.added_tokens().get(named)
    config = getattr(loaded.model.generation_config, "eos_token_id", None)
    listed = config if isinstance(config, list) else [config]
    return frozenset(one for one in (marked, *listed) if isinstance(one, int))


def describe(folder: ModelFolder) -> dict[str, JsonValue]:
    """What reads here: nothing that differs from start to start or names a place on this disk."""
    return {
        "engine": f"transformers {version('transformers')}, torch {version('torch')}, in this process",
        "arithmetic": "float32, sdpa",
        **model_facts(folder),
        **machine_facts(inspect_machine()),
    }


def recorded(
    packet: Packet,
    prompt: Sequence[int],
    answer: Callable[[], tuple[int, ...]],
    said: Callable[[Sequence[int]], str],
) -> Exchange:
    """Run `answer` and keep it as an exchange: the request as a server would have got it, ids, and no latency.

    Only the whole duration is known: tokens do not arrive one by one.
    """
    started, begin = datetime.now(UTC), time.perf_counter_ns()
    ids = answer()
    done = time.perf_counter_ns() - begin
    return Exchange(
        surface=Surface.TOKEN_IN,
        request={
            "messages": [message.to_api() for message in packet.messages],
            "tools": [tool.to_api() for tool in packet.tools],
        },
        prompt_token_ids=tuple(prompt),
        output_token_ids=ids,
        text=said(ids),
        reasoning="",
        tool_calls=(),
        finish_reason=None,
        usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(ids), cached_tokens=None),
        metrics=None,
        timings=Timings(
            started_at=started,
            sent_ns=begin,
            connect_ns=0,
            first_byte_ns=None,
            first_token_ns=None,
            last_token_ns=None,
            done_ns=done,
            arrivals=(),
        ),
        manifest_id=packet.manifest.manifest_id,
    )
