"""The predictor: cached tokens of each request, exact for requests that run one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from serving.errors import UsageError
from serving.prefix.history import Ids, StoredIds
from serving.prefix.keys import DEFAULT_SEED, BlockHasher, HashAlgorithm
from serving.prefix.pool import BlockPool
from serving.prefix.prediction import Prediction, PrefixRequest, explain, id_array, stored_tokens


def predict(
    requests: Iterable[PrefixRequest], *, block_size: int, num_blocks: int | None = None
) -> list[Prediction]:
    """Predict every request of a sequence that runs one at a time on a server that starts cold.

    `block_size` in tokens and `num_blocks` as the server reports them (the reserved block included); None
    is an endless pool. Raises `UsageError` if a request cannot fit the pool.
    """
    predictor = Predictor(block_size, num_blocks)
    predictions = []
    for request in requests:
        predictions.append(predictor.predict_next(request.prompt_ids, request.cache_salt))
        predictor.record(request.output_ids, overrun_tokens=request.overrun_tokens)
    return predictions


@dataclass(frozen=True)
class _Pending:
    prompt_ids: tuple[int, ...]
    cache_salt: str | None
    array: Ids
    keys: tuple[bytes, ...]
    hit_blocks: int


class Predictor:
    """A running prediction: `predict_next` before a call, `record` after it.

    Follows vLLM 0.32 with one full-attention cache group (see `serving.prefix.rules` for what that excludes).
    The state grows with distinct ids only, and not at all with how often they are sent. `algorithm` and
    `seed` matter only where block keys are compared with the server's own.
    """

    def __init__(
        self,
        block_size: int,
        num_blocks: int | None = None,
        *,
        algorithm: HashAlgorithm = HashAlgorithm.SHA256,
        seed: str = DEFAULT_SEED,
    ) -> None:
        if block_size < 1:
            raise UsageError(
                f"A block holds at least 1 token; got block_size={block_size}. Read it from the server."
            )
        self._hasher = BlockHasher(block_size, algorithm, seed)
        self._pool = None if num_blocks is None else BlockPool(num_blocks)
        self._history = StoredIds()
        self._count = 0
        self._pending: _Pending | None = None

    def held_ids(self) -> int:
        """Count the ids kept to compare with, 4 bytes each: every distinct one once."""
        return self._history.held_ids()

    @property
    def pool(self) -> BlockPool | None:
        """The finite pool as it stands after the last recorded request; None when it is endless."""
        return self._pool

    def predict_next(self, prompt_ids: Sequence[int], cache_salt: str | None = None) -> Prediction:
        """Predict the next request; nothing is stored until `record`.

        Raises `UsageError` for an empty prompt, an empty salt, a prompt that cannot fit the pool, or when the
        request before has been neither recorded nor abandoned.
        """
        if self._pending is not None:
            raise UsageError(
                f"Request {self._count} was predicted but not recorded: call record() with its output, or "
                "abandon() if it never reached the engine."
            )
        if not prompt_ids or cache_salt == "":
            raise UsageError("A request needs at least one prompt token, and a salt of None or some text.")
        prompt = tuple(prompt_ids)
        array = id_array(prompt)
        keys: tuple[bytes, ...] = ()
        hit_blocks, cached = 0, None
        size = self._hasher.block_size
        if self._pool is not None:
            self._pool.check_fits(_blocks(len(prompt), size))
            keys = self._hasher.keys(prompt, cache_salt=cache_salt)
            hit_blocks = self._pool.hit_blocks(keys, limit=(len(prompt) - 1) // size)
            cached = hit_blocks * size
        prediction = explain(
            index=self._count,
            prompt_tokens=len(prompt),
            block_size=size,
            cached=cached,
            best=self._history.best(array, cache_salt),
        )
        self._pending = _Pending(prompt, cache_salt, array, keys, hit_blocks)
        return prediction

    def record(
        self, output_ids: Sequence[int] = (), *, overrun_tokens: int = 0, reads_cache: bool = True
    ) -> None:
        """Store what the predicted request left behind: P + O − 1 tokens (see `PrefixRequest`).

        `reads_cache` False: the engine did not look into its cache (prompt log-probabilities), hit nothing and
        stored every block anew.

        Raises `UsageError` if nothing was predicted, or if prompt and output cannot fit the pool.
        """
        pending = self._take_pending()
        kept = stored_tokens(len(pending.prompt_ids), len(output_ids))
        ids = (pending.prompt_ids + tuple(output_ids))[:kept]
        if self._pool is not None:
            keys = self._hasher.keys(ids, cache_salt=pending.cache_salt, known=pending.keys)
            blocks = _blocks(kept + overrun_tokens, self._hasher.block_size)
            self._pool.run(keys, hits=pending.hit_blocks if reads_cache else 0, blocks=blocks)
        array = id_array(ids) if len(output_ids) > 1 else pending.array
        self._history.add(array, pending.cache_salt, self._count)
        self._count += 1

    def abandon(self) -> None:
        """Drop the predicted request: it never reached the engine and left nothing."""
        self._take_pending()

    def contents(self) -> Counter[bytes]:
        """Count the blocks under each key in the finite pool; empty when the pool is endless."""
        return Counter() if self._pool is None else self._pool.contents()

    def _take_pending(self) -> _Pending:
        pending, self._pending = self._pending, None
        if pending is None:
            raise UsageError("record() and abandon() need a request: call predict_next() first.")
        return pending


def _blocks(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)
