"""What goes into a prediction and what comes out: a request in token ids, and where its tokens went."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from enum import StrEnum

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from serving.errors import UsageError
from serving.prefix.history import Best, Ids, Match


class PrefixRequest(BaseModel):
    """One request as the prefix cache sees it: the ids it sent and the ids it got."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_ids: tuple[int, ...] = Field(min_length=1)
    """The rendered prompt, as the engine tokenised it."""
    output_ids: tuple[int, ...] = ()
    """Every generated id, the stop token included."""
    cache_salt: str | None = Field(default=None, min_length=1)
    """Requests with different salts share nothing."""
    overrun_tokens: int = Field(default=0, ge=0)
    """Slots allotted past the stored tokens: 1 where an asynchronous scheduler had begun the next step when a
    stop token came. They hold no reusable KV but can evict one more block."""

    @property
    def stored_tokens(self) -> int:
        """How many leading ids of prompt + output hold KV afterwards: P + O − 1.

        The last generated token is sampled but never fed back. A request that generated nothing counts as
        one whose prompt was computed in full: P.
        """
        return stored_tokens(len(self.prompt_ids), len(self.output_ids))


class Cause(StrEnum):
    """Why tokens of a prompt were computed and not read from the cache.

    Let P be the prompt tokens, B the block size, and hit(n) = B × floor(min(n, P − 1) / B) the tokens that
    a stored prefix of n tokens can serve. The reference is the earlier request of the same salt with the
    longest shared prefix, the latest of equals – or the best of another salt, where that could serve more;
    `shared` and `stored` are its numbers. Each cause is a stretch of the prompt, in this order after the
    cached tokens:
    """

    EVICTION = "eviction"
    """hit(best shared prefix of the same salt) − cached: blocks that an endless pool would still hold."""
    SALT = "salt"
    """hit(shared) − hit(best shared prefix of the same salt): blocks that only another salt may use."""
    BLOCK_ROUNDING = "block_rounding"
    """min(shared, P − 1) − hit(shared): equal ids in a block that is not full or not wholly equal."""
    LAST_TOKEN = "last_token"  # noqa: S105 - a token of text, not a secret
    """1 where the whole prompt was stored (shared = P): its last token is computed anyway, for the logits."""
    DIVERGENCE = "divergence"
    """min(stored, P) − shared: positions where the reference holds other ids."""
    NEW = "new"
    """The rest: positions past the end of everything the reference stored."""


class Relation(StrEnum):
    """How a prompt relates to its reference."""

    CONTAINED = "contained"
    """The prompt is a prefix of what was stored, or equal to it."""
    EXTENDS = "extends"
    """The prompt goes on where the stored ids end."""
    DIVERGES = "diverges"
    """Both have an id at the position where they part, and it differs."""


class Nearest(BaseModel):
    """The earlier request that a prompt is measured against (see `Cause`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    """Position of that request in the sequence, from 0."""
    shared_tokens: int
    """Leading tokens in common; also the position of the first id that is not."""
    stored_tokens: int
    """Tokens of that request whose KV was kept."""
    relation: Relation
    same_salt: bool


class Prediction(BaseModel):
    """How many prompt tokens the prefix cache serves, and where the others went."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: int
    """Position of the request in the sequence, from 0."""
    prompt_tokens: int
    cached_tokens: int
    ceiling_tokens: int
    """The most that any cache could serve: B × floor((P − 1) / B). 0 means that the prompt does not reach
    past its first block, so it cannot hit and nothing is wrong."""
    causes: Mapping[Cause, int]
    """Tokens per cause; every cause is present and the sum is prompt_tokens − cached_tokens."""
    nearest: Nearest | None
    """None for the first request of a salt, unless another salt could have served tokens."""


def stored_tokens(prompt_tokens: int, output_tokens: int) -> int:
    """Give P + O − 1, or P when nothing was generated (see `PrefixRequest.stored_tokens`)."""
    return prompt_tokens + max(output_tokens, 1) - 1


def hit_tokens(shared: int, prompt_tokens: int, block_size: int) -> int:
    """Give the tokens that a stored prefix of `shared` tokens serves: whole blocks, never the last token."""
    return min(shared, prompt_tokens - 1) // block_size * block_size


def id_array(token_ids: tuple[int, ...]) -> Ids:
    """Turn ids into an int32 array; raise `UsageError` for an id that no vocabulary can have."""
    try:
        # Faster than np.array, which asks each id for its type.
        ids = np.frombuffer(array("i", token_ids), dtype=np.int32)
    except OverflowError as error:
        raise UsageError(f"Token ids must be below 2**31: {error}. Pass the ids of the tokenizer.") from error
    if ids.size and int(ids.min()) < 0:
        raise UsageError(
            f"Token ids must not be negative; got {int(ids.min())}. Pass the ids of the tokenizer."
        )
    return ids


def explain(*, index: int, prompt_tokens: int, block_size: int, cached: int | None, best: Best) -> Prediction:
    """Split a prompt into cached tokens and causes (see `Cause`).

    `cached` is what the finite pool holds; None means an endless pool, which holds all that was ever stored.
    """

    def served(match: Match | None) -> int:
        return 0 if match is None else hit_tokens(match.shared, prompt_tokens, block_size)

    endless = served(best.same_salt)
    reference = best.any_salt if served(best.any_salt) > endless else best.same_salt
    shared, stored = (0, 0) if reference is None else (reference.shared, min(reference.stored, prompt_tokens))
    cached_tokens = endless if cached is None else cached
    causes = {
        Cause.EVICTION: endless - cached_tokens,
        Cause.SALT: served(reference) - endless,
        Cause.BLOCK_ROUNDING: min(shared, prompt_tokens - 1) - served(reference),
        Cause.LAST_TOKEN: max(shared - (prompt_tokens - 1), 0),
        Cause.DIVERGENCE: stored - shared,
        Cause.NEW: prompt_tokens - stored,
    }
    return Prediction(
        index=index,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        ceiling_tokens=hit_tokens(prompt_tokens, prompt_tokens, block_size),
        causes=causes,
        nearest=_nearest(reference, prompt_tokens, same_salt=reference is best.same_salt),
    )


def _nearest(reference: Match | None, prompt_tokens: int, *, same_salt: bool) -> Nearest | None:
    if reference is None:
        return None
    if reference.shared == prompt_tokens:
        relation = Relation.CONTAINED
    elif reference.shared == reference.stored:
        relation = Relation.EXTENDS
    else:
        relation = Relation.DIVERGES
    return Nearest(
        index=reference.request,
        shared_tokens=reference.shared,
        stored_tokens=reference.stored,
        relation=relation,
        same_salt=same_salt,
    )
