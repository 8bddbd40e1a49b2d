"""A model in this process as a study's target: it reads ids, answers greedily, and shows its attention.

A served engine does not hand out its attention, so studies of attention run the model with transformers here, in
float32. Nothing of it is a latency: no batch, no prefix cache, no compiled kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from pydantic import JsonValue

from experiments.framework.study import Serve, Served
from serving.assembler import Packet
from serving.chat import ChatRenderer
from serving.client import Exchange, Surface
from serving.client.exchange import Timings, Usage
from serving.engine.machine import inspect_machine
from serving.errors import LabError
from serving.models import ModelFolder, ModelSource, ensure
from serving.progress import Progress, Silent

if TYPE_CHECKING:
    import torch
    from transformers import DynamicCache

    from serving.attention import Capture, CaptureOptions, Segments
    from serving.attention.model import LoadedModel


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

    def count(self, text: str) -> int:
        """Tokens of a text on its own."""
        return len(self.renderer.tokenizer.encode(text).ids)

    def answer(self, prompt: Sequence[int], max_tokens: int) -> tuple[int, ...]:
        """The likeliest next token, again and again, up to and with the token that ends a turn."""
        import torch

        ends = self._end_tokens()
        found: list[int] = []
        with torch.inference_mode():
            scores, cache = self._read(prompt, None)
            while len(found) < max_tokens:
                found.append(int(scores.argmax()))
                if found[-1] in ends:
                    break
                scores, cache = self._read(found[-1:], cache)
        return tuple(found)

    def choose(self, prompt: Sequence[int], texts: Sequence[str]) -> Choice:
        """Which of `texts` the model is likeliest to write next; equal likelihoods go to the first."""
        import torch

        totals = {}
        with torch.inference_mode():
            first, cache = self._read(prompt, None)
            held = cache.get_seq_length()
            for text in texts:
                ids = self.renderer.tokenizer.encode(text).ids
                if not ids:
                    raise LabError("A choice is a text of at least one token, got an empty one.")
                scores, total = first, 0.0
                for place, token in enumerate(ids):
                    total += float(torch.log_softmax(scores, dim=-1)[token])
                    if place + 1 < len(ids):
                        scores, cache = self._read([token], cache)
                cache.crop(held)
                totals[text] = total
        return Choice(max(totals, key=lambda text: totals[text]), totals)

    def text(self, token_ids: Sequence[int]) -> str:
        """What an answer says, without the tokens that only mark its end."""
        return self.renderer.tokenizer.text([one for one in token_ids if one not in self._end_tokens()])

    def capture(self, token_ids: Sequence[int], segments: Segments, options: CaptureOptions) -> Capture:
        """The attention over prompt and answer; same errors as `serving.attention.capture`."""
        from serving.attention.finish import to_capture
        from serving.attention.model import head_shape
        from serving.attention.plan import make_plan

        plan = make_plan(head_shape(self.loaded.model), segments, options)
        return to_capture(plan, self.loaded.run(plan, token_ids, None), self.loaded.identity, token_ids)

    def _read(
        self, token_ids: Sequence[int], cache: DynamicCache | None
    ) -> tuple[torch.Tensor, DynamicCache]:
        """[vocabulary]: scores of the token after these, and the cache that holds them."""
        import torch
        from transformers import DynamicCache

        held = DynamicCache(config=self.loaded.model.config) if cache is None else cache
        ids = torch.tensor([list(token_ids)])
        out = self.loaded.model(ids, past_key_values=held, use_cache=True, logits_to_keep=1)
        return out.logits[0, -1].float(), held

    def _end_tokens(self) -> frozenset[int]:
        named = self.renderer.tokenizer.named_tokens().get("eos_token", "")
        marked = self.renderer.tokenizer.added_tokens().get(named)
        config = getattr(self.loaded.model.generation_config, "eos_token_id", None)
        listed = config if isinstance(config, list) else [config]
        return frozenset(one for one in (marked, *listed) if isinstance(one, int))


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
        model = LocalModel(folder, loaded, ChatRenderer(folder.path))
        yield Served(target=model, environment=describe(folder))

    return serve


def describe(folder: ModelFolder) -> dict[str, JsonValue]:
    """What reads here: nothing that differs from start to start or names a place on this disk."""
    machine = inspect_machine()
    local = folder.source is ModelSource.PATH
    return {
        "engine": f"transformers {version('transformers')}, torch {version('torch')}, in this process",
        "arithmetic": "float32, sdpa",
        "model": folder.name,
        "model_origin": "a folder or file of the user's" if local else folder.origin,
        "model_revision": folder.revision,
        "weights": folder.weights.value,
        "weights_sha256": folder.weights_sha256,
        "processor": machine.cpu_name,
        "cores": len(machine.cores),
        "memory_gib": round(machine.memory_total / 2**30, 1),
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
