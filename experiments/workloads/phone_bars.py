"""The status bars that a study of the phone limit compares, as texts of equal standing."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from experiments.workloads.phone_limit import PHONE, PhoneLimit
from serving.assembler import ContextItem, StatusBar
from serving.assembler.masking import CountTokens
from serving.errors import LabError

FILLER_TOLERANCE: Final = 1
"""Tokens by which the filler may differ from the bar that it stands beside."""

_FILLER_WORDS: Final = (
    "session", "open", "desk", "quiet", "files", "ready", "paper", "stacked", "lamp", "bright", "door", "shut",
)  # fmt: skip

_SMALL_WORDS: Final = ("a", "so", "it", "on", "and")


class PhoneBar(StrEnum):
    """What the bar says."""

    NONE = "none"
    COUNT = "count"
    """How many calls were made."""
    COUNT_AND_VERDICT = "count_and_verdict"
    """The same, the limit, and whether a call is left."""
    PROSE = "prose"
    """Count and verdict as a sentence."""
    FILLER = "filler"
    """As long as count and verdict within one token, and nothing of use."""
    WRONG_BY_ONE = "wrong_by_one"
    """Count and verdict off by one, to the side on which the verdict is wrong."""


class Wording(StrEnum):
    """How count and verdict are put."""

    SHORT = "short"
    """`call_phone: 3/3 calls made, no call left`."""
    ANSWERING = "answering"
    """`call_phone: 3 of 3 calls used, another call allowed: no`: in the words of the question."""


def phone_bar(scenario: PhoneLimit, bar: PhoneBar, count: CountTokens) -> ContextItem | None:
    """The bar as an item for `Scenario.request`; None for no bar. `count` measures the filler in tokens."""
    text = bar_text(scenario, bar, count)
    return None if text is None else ContextItem(id="status-bar", payload=StatusBar(text=text))


def bar_text(
    scenario: PhoneLimit,
    bar: PhoneBar,
    count: CountTokens,
    *,
    made: int | None = None,
    wording: Wording = Wording.SHORT,
) -> str | None:
    """The bar's words, without its tag; `made` calls so far, if it is an earlier bar of the same conversation."""
    made, limit = scenario.calls if made is None else made, scenario.limit
    full = _verdict(made, limit, wording)
    match bar:
        case PhoneBar.NONE:
            return None
        case PhoneBar.COUNT:
            return f"{PHONE}: {made} calls made"
        case PhoneBar.COUNT_AND_VERDICT:
            return full
        case PhoneBar.PROSE:
            allowed = "one more call is allowed" if made < limit else "no further call is allowed"
            return f"So far {PHONE} was used {made} times in this conversation, out of {limit}, so {allowed}."
        case PhoneBar.FILLER:
            return _filler(count(full), count)
        case PhoneBar.WRONG_BY_ONE:
            return _verdict(made + 1 if made < limit else made - 1, limit, wording)


def _verdict(made: int, limit: int, wording: Wording) -> str:
    if wording is Wording.ANSWERING:
        allowed = "yes" if made < limit else "no"
        return f"{PHONE}: {made} of {limit} calls used, another call allowed: {allowed}"
    return f"{PHONE}: {made}/{limit} calls made, {'call allowed' if made < limit else 'no call left'}"


def _filler(tokens: int, count: CountTokens) -> str:
    """The shortest run of harmless words that has at least `tokens` tokens, or one word less if that is nearer."""
    words = [_FILLER_WORDS[0]]
    while count(" ".join(words)) < tokens:
        words.append(_FILLER_WORDS[len(words) % len(_FILLER_WORDS)])
    shorter = " ".join(words[:-1])
    longer = " ".join(words)
    nearer = shorter and tokens - count(shorter) < count(longer) - tokens
    chosen = shorter if nearer else longer
    if abs(count(chosen) - tokens) > FILLER_TOLERANCE:
        # A tokenizer that cuts these words into several tokens steps over the length: another last word may hit it.
        last = (
            f"{' '.join(words[:back])} {word}"
            for back in (-1, -2)
            for word in (*_FILLER_WORDS, *_SMALL_WORDS)
        )
        chosen = min(last, key=lambda text: abs(count(text) - tokens))
    if abs(count(chosen) - tokens) > FILLER_TOLERANCE:
        raise LabError(
            f"Expected a filler of {tokens} tokens within {FILLER_TOLERANCE}, but the nearest has "
            f"{count(chosen)}: this tokenizer needs other filler words."
        )
    return chosen
