"""The requests of a proof: short, salted, and each at an edge of the rule."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import NamedTuple

Ids = tuple[int, ...]


class Shape(NamedTuple):
    """One request in token ids, and what it tries."""

    what: str
    ids: Ids
    max_tokens: int
    salt: str


Shapes = Generator[Shape, Ids, None]
"""Yields requests and is sent the output ids of each."""


def edge_shapes(vocabulary: Sequence[int], block: int, longest: int, salt: str) -> Shapes:
    """Thirty-odd requests: every edge by name, then random mixtures up to 30.

    `vocabulary` are ids that the model surely has; `longest` bounds prompt and output. Needs room for five
    blocks; two salts are made from `salt`.
    """
    draw = random.Random(salt)  # noqa: S311 - prompts, not secrets
    one, other = f"{salt}-1", f"{salt}-2"

    def fresh(count: int) -> Ids:
        return tuple(draw.choice(vocabulary) for _ in range(count))

    base = fresh(4 * block + 3)
    yield Shape("a prompt never sent before", base, 1, one)
    yield Shape("the same again", base, 1, one)
    yield Shape("the same under another salt", base, 1, other)
    yield Shape("its whole blocks only", base[: 4 * block], 1, one)
    yield Shape("its whole blocks and one token", base[: 4 * block + 1], 1, one)
    yield Shape("cut inside a block", base[: 2 * block + block // 2], 1, one)
    yield Shape("one block, exactly", base[:block], 1, one)
    yield Shape("less than one block", base[: max(block - 1, 1)], 1, one)
    yield Shape("parting inside a block", base[: block + block // 2] + fresh(2 * block), 1, one)
    yield Shape("parting at the first token", fresh(1) + fresh(block) + base[1:], 1, one)
    yield Shape("nothing in common", fresh(2 * block + 1), 1, one)
    # P + O − 1 generated and prompt tokens are kept: one output token decides whether a block becomes full.
    for missing in (0, 1):
        prompt = fresh(2 * block - min(block - 1, 6))
        output = yield Shape(
            "an output that fills a block" if missing == 0 else "an output one token short of a block",
            prompt,
            2 * block - len(prompt) + 1 - missing,
            one,
        )
        yield Shape("the next turn after it", prompt + output + fresh(3), 1, one)
    stored = [base]
    for _ in range(15):
        kept = draw.choice(stored)
        prompt = (kept[: draw.randrange(len(kept) + 1)] + fresh(draw.randrange(1, 2 * block)))[: longest - 4]
        output = yield Shape("a random one", prompt, draw.randrange(1, 5), draw.choice([one, one, other]))
        stored.append(prompt + output)


def pool_shapes(vocabulary: Sequence[int], block: int, num_blocks: int, longest: int, salt: str) -> Shapes:
    """Requests whose hits tell the size of the pool to the block; they fill all of it once.

    Prompts of whole blocks and one token fill the pool to its last block, so with one block less the first of
    them would have lost its tail. One more block then takes the tail of the second, and with one block more
    in the pool it would not.
    """
    draw = random.Random(salt)  # noqa: S311 - prompts, not secrets
    room = num_blocks - 2  # one block is reserved, one holds the single token past the whole blocks
    each = max(min((longest - 2) // block, room // 3), 1)
    lengths = [each] * (room // each)
    lengths += [rest] if (rest := room - sum(lengths)) else []

    def prompt(blocks: int) -> Ids:
        return tuple(draw.choice(vocabulary) for _ in range(blocks * block + 1))

    filling = [prompt(blocks) for blocks in lengths]
    for ids in filling:
        yield Shape("filling the pool", ids, 1, salt)
    yield Shape("the first of them again", filling[0], 1, salt)
    yield Shape("one block more", prompt(1), 1, salt)
    yield Shape("the second of them again", filling[1], 1, salt)
