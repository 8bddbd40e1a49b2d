"""Where a text may be cut so that its parts, encoded alone, give the ids of the whole.

A tokenizer first looks for its added tokens in the raw text (leftmost, of these the longest, then on from its
end), and only what lies between them is normalised, split and encoded, each stretch by itself. So a text may
be cut before an added token: the search finds the same tokens on both sides, and no stretch reaches across.
What the pipeline does inside a stretch (normaliser, pre-tokenizer, model) does not matter: no step is told
where in the text a stretch lies, except whether it is at the very start (`prepend_scheme: first`), and a part
that begins with an added token has no stretch at its start. (`tokenizers`, `AddedVocabulary`:
`extract_and_normalize` and `find_matches`.)

Four kinds of added tokens are no place for a cut:

- those matched in normalised text, which are found inside a stretch;
- those that take white space on their left, or begin with some, for they may start before they seem to;
- those that stand as a single word only: whether they match depends on both neighbours. Such a token, not
  matching, may hide another one inside it, so a tokenizer that has any is not cut at all.

A model that drops merges at random has no ids of the whole to equal, and is not cut either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Cuts:
    """The added tokens of a tokenizer, as far as they say where a text may be cut."""

    _matched: re.Pattern[str]
    """Every token that is looked for in the raw text, longer ones first."""
    _safe: frozenset[str]
    """Those of them before which a text may be cut."""
    reach: int
    """Characters after a place that can decide whether a token is found there: the longest token's length."""

    def places(self, text: str, start: int = 0) -> list[int]:
        """The places in `text` from `start` on, in order; `start` is 0 or such a place itself."""
        safe = self._safe
        return [found.start() for found in self._matched.finditer(text, start) if found[0] in safe]


def cuts_of(tokenizer: Tokenizer) -> Cuts | None:
    """The cuts of a tokenizer; None where equal ids are not proven (see above)."""
    if getattr(tokenizer.model, "dropout", None):
        return None
    added = tokenizer.get_added_tokens_decoder().values()
    raw = [token for token in added if token.content and not token.normalized]
    if any(token.single_word for token in raw):
        return None
    safe = frozenset(token.content for token in raw if not token.lstrip and not token.content[0].isspace())
    longest_first = sorted((token.content for token in raw), key=lambda text: (-len(text), text))
    pattern = "|".join(map(re.escape, longest_first)) or r"(?!)"
    return Cuts(re.compile(pattern), safe, max(map(len, longest_first), default=0))
