"""One request's uncached tokens by cause, and the first difference behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serving.explain.causes import FROM_PREDICTION, MissCause
from serving.explain.detectors import Finding, name_cause
from serving.explain.difference import Difference, difference
from serving.explain.first_break import FirstBreak
from serving.explain.turn import Turn, common_messages
from serving.prefix import Cause, Prediction
from serving.prefix.history import common_prefix
from serving.prefix.prediction import id_array


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a request's tokens were computed again."""

    prompt_tokens: int
    cached_tokens: int
    tokens: Mapping[MissCause, int]
    """Tokens by cause, none of them 0; they add up to prompt − cached."""
    broken: FirstBreak | None = None
    """Where the request leaves the earlier one; None where it extends it, or nothing was stored."""
    finding: Finding | None = None
    """The cause of that difference, or of the largest avoidable loss without one (salt, eviction)."""

    @property
    def lost_tokens(self) -> int:
        """Tokens whose cause is avoidable."""
        return sum(tokens for cause, tokens in self.tokens.items() if cause.avoidable)


def explain_miss(
    prediction: Prediction,
    sent: Turn | None,
    stored: Turn | None,
    *,
    before: Turn | None = None,
    reads_cache: bool = True,
) -> Miss:
    """Name where the uncached tokens of a predicted request went.

    `stored` is the earlier request to hold it against: the predictor's nearest one, or an earlier turn of the
    same conversation; None where nothing differs (`sent` may then be None too). `before` is the turn that the
    client went on from, where that is known: if it has more messages in common, it names the cause, and place and
    counts stay those of `stored`. `reads_cache` False: the engine skipped its cache for this request (prompt
    log-probabilities).
    """
    prompt, nearest = prediction.prompt_tokens, prediction.nearest
    if prediction.ceiling_tokens == 0:
        below = Finding(
            MissCause.BELOW_ONE_BLOCK,
            f"The prompt has {prompt} tokens and does not reach past its first block.",
        )
        return Miss(prompt, 0, {MissCause.BELOW_ONE_BLOCK: prompt}, finding=below)
    shared = 0 if nearest is None else nearest.shared_tokens
    tokens = {cause: prediction.causes[ours] for ours, cause in FROM_PREDICTION.items()}
    divergence = prediction.causes[Cause.DIVERGENCE]
    broken, finding = None, None
    if sent is not None and stored is not None and (parted := _parted(sent, stored)) is not None:
        found = difference(stored, sent, parted)
        broken, finding = found.broken, name_cause(_told_by(before, sent, found))
        # An earlier turn of the conversation reaches further than the nearest ids do.
        reach = max(shared, min(len(stored.ids), prompt))
        divergence, tokens[MissCause.NEW] = reach - shared, prompt - reach
    if divergence:
        cause = MissCause.UNKNOWN if finding is None else finding.cause
        tokens[cause] = tokens.get(cause, 0) + divergence
    cached = prediction.cached_tokens
    if not reads_cache:
        tokens[MissCause.READS_SKIPPED] = cached
        cached = 0
    kept = {cause: count for cause, count in tokens.items() if count}
    assert sum(kept.values()) == prompt - cached
    return Miss(prompt, cached, kept, broken, finding or _without_difference(kept))


def _told_by(before: Turn | None, sent: Turn, found: Difference) -> Difference:
    """The difference to the turn before where that shows more than the nearest ids do.

    Where histories begin elsewhere each time, the nearest is the one whose first words happen to be most alike.
    """
    if before is None or common_messages(before, sent) <= common_messages(found.stored, sent):
        return found
    parted = _parted(sent, before)
    return found if parted is None else difference(before, sent, parted)


def _parted(sent: Turn, stored: Turn) -> int | None:
    """The first token that differs; None where one of both ends before."""
    shared = common_prefix(id_array(stored.ids), id_array(sent.prompt_ids))
    return shared if shared < min(len(stored.ids), len(sent.prompt_ids)) else None


def _without_difference(tokens: Mapping[MissCause, int]) -> Finding | None:
    details = {
        MissCause.OTHER_SALT: "These tokens are stored under another cache_salt, and salts share nothing.",
        MissCause.EVICTED: "These blocks were stored, and later requests took their place.",
        MissCause.READS_SKIPPED: "The request asks for prompt_logprobs, so the engine did not look into its cache.",
    }
    most = max(details, key=lambda cause: tokens.get(cause, 0))
    return Finding(most, details[most]) if tokens.get(most) else None
