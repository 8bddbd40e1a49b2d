"""Whether what a summary says can come from its sources, as far as code can tell.

Three rules, each on the words themselves: identifiers and numbers must stand in a source letter by letter; a
rule ("must", "never") needs a source that has one about the same thing; so does a claim that something was
archived. Meaning is not judged, and the markers of rules are English ones: a paraphrase passes, and so does a
wrong count written as a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_RUN: Final = re.compile(r"[\w./:@#+%\\-]+")
_EDGE: Final = ".:,-+%\\"
_LIST_MARK: Final = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+", re.M)
_GROUPED: Final = re.compile(r"(?<=\d)[,_](?=\d{3}(?!\d))")
_MEASURE: Final = re.compile(r"(?P<number>[+-]?\d+(?:\.\d+)?)(?P<unit>[A-Za-zµ%]{1,3})")
_DOTTED: Final = re.compile(r"\w{2,}(?:\.\w{2,})+")
_CAMEL: Final = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]{2}")

_RULE: Final = re.compile(
    r"\b(?:must|shall|mustn['’]t|forbidden|prohibited|mandatory|not allowed|not permitted|may not|"
    r"no one may|under no circumstances)\b"
    r"|(?<!was )(?<!were )(?<!is )(?<!are )(?<!has )(?<!have )(?<!had )(?<!been )\bnever\b"
    r"|(?:^|[:;,]\s*|\b(?:you|please|and|but) )(?:do not|don['’]t|always)\b",
    re.I,
)
_RULE_IN_SOURCE: Final = re.compile(
    rf"{_RULE.pattern}|\b(?:never|do not|don['’]t|cannot|can['’]t|only|required?|requires|always|at most|"
    r"at least|no more than|no|not|without|before|until|unless|limit(?:ed)?|needs?|should)\b",
    re.I,
)
_ARCHIVE: Final = re.compile(
    r"\b(?:archived?|backed up|offloaded)\b"
    r"|\b(?:saved|stored|kept|persisted|written|available|moved) (?:in|to|at|on|under|as|for)\b",
    re.I,
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?;])\s+|\n+")
_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_STEM: Final = 5
_SHARED: Final = 0.5
"""Share of a rule's content words that its witness must have."""


def unsupported_words(text: str, sources: Iterable[str]) -> tuple[str, ...]:
    """Identifiers and numbers of `text` that stand in none of `sources`, in order, each once.

    An identifier is a run of letters that no prose has: with a digit, an underscore, an inner dot, several
    slashes, a mixed case. Thousands marks and a blank before a unit do not count as a difference.
    """
    wanted = list(dict.fromkeys(_checked_words(_normal(_LIST_MARK.sub("", text)))))
    if not wanted:
        return ()
    haystack = _normal("\n".join(sources))
    folded = haystack.casefold()
    return tuple(word for word in wanted if not _stands(word, haystack, folded))


def unwitnessed_rule(text: str, sources: Sequence[str]) -> str | None:
    """The first sentence of `text` that states a rule for which no sentence of `sources` is a witness."""
    return _unwitnessed(text, sources, _RULE, _RULE_IN_SOURCE)


def unwitnessed_archive(text: str, sources: Sequence[str]) -> str | None:
    """The first sentence of `text` that tells of an archive of which no sentence of `sources` tells."""
    return _unwitnessed(text, sources, _ARCHIVE, _ARCHIVE)


def _checked_words(text: str) -> Iterator[str]:
    for found in _RUN.finditer(text):
        word = found[0].rstrip(_EDGE)
        # A sign belongs to its number; any other mark at the edge belongs to the sentence.
        word = word if re.match(r"[+-]\d", word) else word.lstrip(_EDGE if word[:2] != "./" else "")
        if word and _is_checked(word):
            yield word


def _is_checked(word: str) -> bool:
    if any(character.isdigit() for character in word):
        return True
    if "_" in word or "@" in word or "\\" in word or "://" in word:
        return any(character.isalnum() for character in word)
    if word.startswith(("/", "./")) or word.count("/") > 1:
        return any(character.isalnum() for character in word)
    return bool(_DOTTED.search(word) or _CAMEL.search(word))


def _stands(word: str, haystack: str, folded: str) -> bool:
    if not any(character.isdigit() or character in "_@\\/" for character in word) and _CAMEL.search(word):
        # Product names come in many cases; an identifier with nothing but letters may be one.
        return word.casefold() in folded
    if _bounded(re.escape(word), word, haystack):
        return True
    measure = _MEASURE.fullmatch(word)
    if measure is None:
        return False
    return _bounded(rf"{re.escape(measure['number'])}\s?{re.escape(measure['unit'])}", word, haystack)


def _bounded(pattern: str, word: str, haystack: str) -> bool:
    """Whether it stands there whole: `17` not in `A-170`, `1.5` not in `1.5.2`, `main.py` not in `main.pyc`."""
    before = r"(?<!\w)(?<!\d[.,])" if word[0].isdigit() else r"(?<!\w)"
    after = r"(?!\w)(?![.,]\d)" if word[-1].isdigit() else r"(?!\w)"
    return re.search(f"{before}{pattern}{after}", haystack) is not None


def _normal(text: str) -> str:
    return _GROUPED.sub("", unicodedata.normalize("NFKC", text))


def _unwitnessed(
    text: str, sources: Sequence[str], marker: re.Pattern[str], witness: re.Pattern[str]
) -> str | None:
    claims = [sentence for sentence in _sentences(_LIST_MARK.sub("", text)) if marker.search(sentence)]
    if not claims:
        return None
    witnesses = [
        _stems(sentence) for source in sources for sentence in _sentences(source) if witness.search(sentence)
    ]
    return next((claim for claim in claims if not _has_witness(_stems(claim), witnesses)), None)


def _has_witness(claim: frozenset[str], witnesses: Sequence[frozenset[str]]) -> bool:
    needed = _SHARED * len(claim)
    return any(len(claim & witness) >= needed for witness in witnesses)


def _sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in _SENTENCE_END.split(text) if sentence.strip()]


def _stems(sentence: str) -> frozenset[str]:
    """The content words, by their first letters: `deleting` and `deleted` are one."""
    return frozenset(word[:_STEM].casefold() for word in _WORD.findall(sentence))
