"""The block pool: which blocks of a finite KV cache are still there when the next request comes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import islice

from serving.errors import UsageError


class BlockPool:
    """A KV cache of `num_blocks` blocks under vLLM's eviction rule, for requests that run one at a time.

    `num_blocks` is the number the server reports (`num_gpu_blocks`); block 0 is reserved, so one fewer can
    be used. Free blocks wait in one queue. A new block is taken from its front and loses its key there; a
    hit takes its block out of the middle. A finished request returns its blocks last one first: those
    without a key to the front, those with a key to the back. Equal blocks computed twice stay two blocks
    under one key, and the older one serves hits.

    Source: vLLM 0.32 `BlockPool`, `FreeKVCacheBlockQueue`, `BlockHashToBlockMap`. The tests compare hits,
    block numbers and the whole queue with the originals.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 2:
            raise UsageError(
                f"A pool needs at least 2 blocks, one of them reserved; got num_blocks={num_blocks}. "
                "Give the number of blocks that the server reports."
            )
        self._num_blocks = num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self._key_of: dict[int, bytes] = {}
        # Insertion order is the order in which copies became full: the first one serves hits.
        self._copies: dict[bytes, dict[int, None]] = {}

    @property
    def usable_blocks(self) -> int:
        """How many blocks requests can hold: all but the reserved one."""
        return self._num_blocks - 1

    def hit_blocks(self, keys: Sequence[bytes], limit: int) -> int:
        """Count how many of the first `limit` blocks of a request are here without a gap from block 0."""
        count = 0
        for key in islice(keys, limit):
            if key not in self._copies:
                break
            count += 1
        return count

    def run(self, keys: Sequence[bytes], *, hits: int, blocks: int) -> None:
        """Let one request take its `hits` cached blocks and new ones up to `blocks`, finish and return all.

        `keys` are those of its full blocks, prompt and output. Raises `UsageError` if `blocks` exceeds the
        pool.
        """
        self.check_fits(blocks)
        held = [next(iter(self._copies[key])) for key in islice(keys, hits)]
        for block in held:
            del self._free[block]
        for _ in range(blocks - hits):
            block, _none = self._free.popitem(last=False)
            self._evict(block)
            held.append(block)
        for block, key in islice(zip(held, keys, strict=False), hits, None):
            self._key_of[block] = key
            self._copies.setdefault(key, {})[block] = None
        self._give_back(held)

    def check_fits(self, blocks: int) -> None:
        """Raise `UsageError` if one request would need more blocks than the pool can ever give."""
        if blocks > self.usable_blocks:
            raise UsageError(
                f"A request must fit the KV cache: it needs {blocks} blocks, and {self.usable_blocks} of "
                f"{self._num_blocks} can be used (one is reserved). Give the number of blocks that the "
                "server reports, or shorten the request."
            )

    def clear(self) -> None:
        """Forget every key, as `/reset_prefix_cache` does; the order of the queue stays."""
        self._key_of.clear()
        self._copies.clear()

    def contents(self) -> Counter[bytes]:
        """Count the blocks under each key: what a mirror of the server's KV events must agree with."""
        return Counter({key: len(copies) for key, copies in self._copies.items()})

    def eviction_order(self) -> list[tuple[int, bytes | None]]:
        """List (block number, key) in the order in which the free blocks will be given out."""
        return [(block, self._key_of.get(block)) for block in self._free]

    def _evict(self, block: int) -> None:
        key = self._key_of.pop(block, None)
        if key is None:
            return
        copies = self._copies[key]
        del copies[block]
        if not copies:
            del self._copies[key]

    def _give_back(self, held: Sequence[int]) -> None:
        without_key = []
        for block in reversed(held):
            if block in self._key_of:
                self._free[block] = None
            else:
                without_key.append(block)
        # Prepended as a run that keeps its own order, hence laid down from its end.
        for block in reversed(without_key):
            self._free[block] = None
            self._free.move_to_end(block, last=False)
