"""Whether each request of a run begins with the one before and its answer, and what it loses if not: ids alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from serving.chat.survey import Kept
from serving.prefix.prediction import hit_tokens, stored_tokens


@dataclass(frozen=True, slots=True)
class Sent:
    """One request of a run, in ids."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    """What was generated, its last id included, which no engine stores; empty: unknown."""
    cached: int
    """Prompt tokens that were reused, or would have been in an endless cache of this run alone."""

    @property
    def stored(self) -> tuple[int, ...]:
        """Prompt and output ids whose KV the engine kept."""
        ids = self.prompt + self.output
        return ids[: stored_tokens(len(self.prompt), len(self.output))]


def kept(before: Sent, now: Sent) -> Kept:
    """How much of a request still begins the next one."""
    shared = next(
        (at for at, (a, b) in enumerate(zip(before.stored, now.prompt, strict=False)) if a != b),
        min(len(before.stored), len(now.prompt)),
    )
    if shared == len(before.stored):
        return Kept.ALL
    return Kept.PROMPT if shared >= len(before.prompt) else Kept.PART


@dataclass(frozen=True, slots=True)
class RunProof:
    """A whole run against its append-only twin: requests of the same lengths, each of which extends all before."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    twin_tokens: int
    """What the twin reuses, in whole blocks and never the last token of a prompt."""
    kept_all: int
    """Requests after the first that extend the prompt before them and its answer."""
    kept_prompt: int
    """Those that extend the prompt alone."""

    @property
    def lost_tokens(self) -> int:
        """Tokens that the twin reuses and this run computes."""
        return self.twin_tokens - self.cached_tokens


def prove_run(sent: Sequence[Sent], block_size: int) -> RunProof:
    """Compare a run with its twin; `block_size` in tokens."""
    longest, twin = 0, 0
    for request in sent:
        twin += hit_tokens(longest, len(request.prompt), block_size)
        longest = max(longest, len(request.stored))
    found = [kept(before, now) for before, now in pairwise(sent)]
    return RunProof(
        calls=len(sent),
        prompt_tokens=sum(len(request.prompt) for request in sent),
        cached_tokens=sum(request.cached for request in sent),
        twin_tokens=twin,
        kept_all=found.count(Kept.ALL),
        kept_prompt=found.count(Kept.PROMPT),
    )
