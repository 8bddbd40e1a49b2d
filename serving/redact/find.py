"""The detector over all rules, and the redactor built on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from serving.redact.assignments import ASSIGNMENTS
from serving.redact.blocks import BLOCKS
from serving.redact.credentials import CREDENTIALS
from serving.redact.kinds import Finding, Redaction, SecretKind
from serving.redact.personal import PERSONAL_DATA
from serving.redact.rule import Rule, Source
from serving.redact.tokens import TOKENS

_RULES: Final[tuple[Rule, ...]] = (*BLOCKS, *TOKENS, *CREDENTIALS, *ASSIGNMENTS, *PERSONAL_DATA)
_RANK: Final = {kind: rank for rank, kind in enumerate(SecretKind)}
_ALL: Final = frozenset(SecretKind)
_MARK: Final = re.compile(rf"\[redacted:(?:{'|'.join(SecretKind)})\]")


def find(text: str, *, kinds: frozenset[SecretKind] = _ALL) -> tuple[Finding, ...]:
    """Where secrets and personal data of `kinds` stand, from left to right, without overlaps.

    The marks of an earlier redaction divide a text, and no finding reaches over one. What is found divides it
    again: a stretch counts as clean once it was searched by itself. So the text without its findings has
    none, whatever stood side by side. Takes time linear in the text; never raises, for any `str`.
    """
    findings: list[Finding] = []
    stretches = list(_between(0, len(text), [match.span() for match in _MARK.finditer(text)]))
    while stretches:
        start, end = stretches.pop()
        found = _search(text[start:end], kinds)
        if found:
            here = [Finding(kind, start + begin, start + stop) for kind, begin, stop in found]
            findings += here
            stretches += _between(start, end, [(begin, stop) for _, begin, stop in here])
    return tuple(sorted(findings, key=lambda finding: finding.start))


def kinds_in(text: str, *, kinds: frozenset[SecretKind] = _ALL) -> tuple[str, ...]:
    """The kinds of what `find` finds, sorted: what a log or a manifest may say about a text."""
    return tuple(sorted({finding.kind.value for finding in find(text, kinds=kinds)}))


def redact(text: str, *, kinds: frozenset[SecretKind] = _ALL) -> Redaction:
    """The text with `[redacted:<kind>]` for each finding; a clean text comes back as it is.

    The same text always gives the same answer, and redacting an answer changes nothing.
    """
    findings = find(text, kinds=kinds)
    if not findings:
        return Redaction(text)
    parts, at = [], 0
    for kind, start, end in findings:
        parts += [text[at:start], f"[redacted:{kind}]"]
        at = end
    return Redaction(
        "".join((*parts, text[at:])), tuple(sorted({finding.kind.value for finding in findings}))
    )


@dataclass(frozen=True, slots=True)
class SecretRedactor:
    """The redactor of this room, for whatever asks for a `Redactor`; `kinds` narrows what it takes out."""

    kinds: frozenset[SecretKind] = _ALL

    def redact(self, text: str) -> Redaction:
        """The text without secrets and personal data; never raises."""
        return redact(text, kinds=self.kinds)


def _between(start: int, end: int, spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The stretches of `start` to `end` around `spans`, which are in order."""
    for begin, stop in spans:
        if start < begin:
            yield start, begin
        start = stop
    if start < end:
        yield start, end


def _search(text: str, kinds: frozenset[SecretKind]) -> list[Finding]:
    source = Source(text)
    found = [finding for rule in _RULES if rule.kinds & kinds for finding in rule.search(source)]
    return _joined(sorted((finding for finding in found if finding.kind in kinds), key=_order))


def _order(finding: Finding) -> tuple[int, int]:
    return finding.start, _RANK[finding.kind]


def _joined(findings: list[Finding]) -> list[Finding]:
    """Overlapping findings become one that covers them all, so that no part of any is left."""
    joined: list[Finding] = []
    for finding in findings:
        last = joined[-1] if joined else None
        if last is None or finding.start >= last.end:
            joined.append(finding)
        else:
            kind = min(last.kind, finding.kind, key=lambda kind: _RANK[kind])
            joined[-1] = Finding(kind, last.start, max(last.end, finding.end))
    return joined
