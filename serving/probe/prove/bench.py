"""The running part of a proof: one request after another, predicted and compared."""

from __future__ import annotations

import time

from serving.client import ChatRequest, Client, CompletionRequest, Exchange
from serving.errors import LabError
from serving.prefix import Cause, Predictor
from serving.prefix.history import Ids, common_prefix
from serving.prefix.prediction import id_array, stored_tokens
from serving.probe.prove.claims import Compared
from serving.probe.prove.lies import Case
from serving.probe.prove.shapes import Shapes


class ProofStoppedError(LabError):
    """A request of the proof failed, or the server stopped telling what it reads: nothing after it counts."""


class Bench:
    """Sends requests one at a time and keeps, for each, what the rule says beside what the server says.

    The pool is predicted as if it were empty: what others left in it is evicted before anything of ours, and
    a hit needs our salt.
    """

    def __init__(self, client: Client, model: str, block_size: int, num_blocks: int | None) -> None:
        self.client = client
        self.model = model
        self.block_size = block_size
        self.predictor = Predictor(block_size, num_blocks)
        self.compared: list[Compared] = []
        self.cases: list[Case] = []
        self.evicted: list[bool] = []
        """Whether blocks that a request could have hit are predicted to be gone."""
        self.seconds = 0.0
        self.computed_tokens = 0
        self._stored: list[tuple[str | None, Ids]] = []

    def run(self, shapes: Shapes) -> slice:
        """Play a generator of shapes to its end; the stretch of `compared` and `cases` that it took.

        Raises: ProofStoppedError.
        """
        first = len(self.compared)
        output: tuple[int, ...] | None = None
        while True:
            try:
                shape = next(shapes) if output is None else shapes.send(output)
            except StopIteration:
                return slice(first, len(self.compared))
            request = CompletionRequest(
                model=self.model,
                prompt=shape.ids,
                max_tokens=shape.max_tokens,
                cache_salt=shape.salt,
                extra={"ignore_eos": True},  # a stop token would end a shape early
            )
            output = self._compare(shape.what, request, shape.ids).output_token_ids

    def chat(self, what: str, request: ChatRequest) -> Exchange:
        """The same for a conversation, predicted from the ids that the server says it read."""
        return self._compare(what, request, None)

    def _compare(
        self, what: str, request: ChatRequest | CompletionRequest, ids: tuple[int, ...] | None
    ) -> Exchange:
        started = time.perf_counter()
        exchange = send(self.client, request)
        self.seconds += time.perf_counter() - started
        read, output = exchange.prompt_token_ids, exchange.output_token_ids
        if read is None or output is None or (ids is not None and read != ids):
            told = "no token ids" if read is None or output is None else "ids that were not sent"
            raise ProofStoppedError(
                f"Expected the server to tell which ids it read in {what!r}, and it told {told}: nothing can be "
                "predicted then."
            )
        # Nothing that the server counts enters the prediction, so it is the same as before the call.
        prediction = self.predictor.predict_next(read, request.cache_salt)
        self.predictor.record(output)
        self.cases.append(
            Case(
                prompt=prediction.prompt_tokens,
                predicted=prediction.cached_tokens,
                shared=self._shared(read, request.cache_salt),
                unsalted=prediction.cached_tokens + prediction.causes[Cause.SALT],
                previous=self.cases[-1].predicted if self.cases else None,
            )
        )
        self.evicted.append(prediction.causes[Cause.EVICTION] > 0)
        kept = id_array((*read, *output)[: stored_tokens(len(read), len(output))])
        self._stored.append((request.cache_salt, kept))
        self.compared.append(
            Compared(
                what=what,
                surface=exchange.surface,
                prompt_tokens=prediction.prompt_tokens,
                predicted=prediction.cached_tokens,
                reported=None if exchange.usage is None else exchange.usage.cached_tokens,
            )
        )
        self.computed_tokens += prediction.prompt_tokens - prediction.cached_tokens + len(output)
        return exchange

    def whole(self, stretch: slice) -> tuple[list[Case], list[Compared]]:
        """Those of a stretch from which nothing was evicted: formulas over shared lengths hold for them only."""
        kept = [place for place in range(*stretch.indices(len(self.cases))) if not self.evicted[place]]
        return [self.cases[place] for place in kept], [self.compared[place] for place in kept]

    def _shared(self, ids: tuple[int, ...], salt: str | None) -> int:
        prompt = id_array(ids)
        return max((common_prefix(kept, prompt) for of, kept in self._stored if of == salt), default=0)


def send(client: Client, request: ChatRequest | CompletionRequest) -> Exchange:
    """One call; raises `ProofStoppedError` with the server's or the network's words where it failed."""
    exchange = client.chat(request) if isinstance(request, ChatRequest) else client.complete(request)
    if exchange.error is not None:
        raise ProofStoppedError(exchange.error.sentence)
    return exchange
