"""The detector over all rules, and the redactor built on it."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
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
_HOLE: Final = "\x00"
_TURNS: Final = 4
"""Searches after which a line that still gives something is taken whole.

Each finding may lay open one more before it, without end where somebody wrote it so; no rule but that of key
blocks looks beyond its line, so that then nothing is left to lay open, and the work stays linear.
"""
_MARK: Final = re.compile(rf"\[redacted:(?:{'|'.join(SecretKind)})\]")


def find(text: str, *, kinds: frozenset[SecretKind] = _ALL) -> tuple[Finding, ...]:
    """Where secrets and personal data of `kinds` stand, from left to right, without overlaps.

    The marks of an earlier redaction are no part of any finding. Takes time linear in the text; never raises,
    for any `str`.
    """
    findings: list[Finding] = []
    holes = _joined_spans([match.span() for match in _MARK.finditer(text)])
    # What is found leaves a hole, and what stood glued to it may be found then. The last search sees what a
    # search of the redacted text would see, and found nothing: so redacting twice is redacting once.
    turn = 0
    while found := _search_around(text, holes, kinds, whole_lines=turn >= _TURNS):
        findings = sorted([*findings, *found], key=_order)
        holes = _joined_spans([*holes, *((start, end) for _, start, end in found)])
        turn += 1
    return tuple(findings)


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


def _search_around(
    text: str, holes: list[tuple[int, int]], kinds: frozenset[SecretKind], *, whole_lines: bool
) -> list[Finding]:
    """Findings in a text whose `holes` (in order, apart) are each read as one character of no use."""
    starts = [0, *(end for _, end in holes)]
    ends = [*(start for start, _ in holes), len(text)]
    pieces = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    # Where each piece begins in what is searched: behind the pieces and the holes before it.
    begins = list(accumulate((len(piece) + 1 for piece in pieces[:-1]), initial=0))
    found = []
    for kind, start, end in _search(_HOLE.join(pieces), kinds, whole_lines=whole_lines):
        piece = bisect_right(begins, start) - 1
        while start < end:  # a finding that reaches over a hole is cut there
            begin, stop = begins[piece], begins[piece] + len(pieces[piece])
            if start < min(end, stop):
                found.append(
                    Finding(kind, starts[piece] + start - begin, starts[piece] + min(end, stop) - begin)
                )
            start, piece = stop + 1, piece + 1
    return found


def _search(text: str, kinds: frozenset[SecretKind], *, whole_lines: bool) -> list[Finding]:
    source = Source(text)
    found = [finding for rule in _RULES if rule.kinds & kinds for finding in rule.search(source)]
    found = [finding for finding in found if finding.kind in kinds]
    if whole_lines:
        found = [_whole_lines(text, finding) for finding in found]
    return _joined(sorted(found, key=_order))


def _whole_lines(text: str, finding: Finding) -> Finding:
    end = text.find("\n", finding.end)
    return Finding(finding.kind, text.rfind("\n", 0, finding.start) + 1, len(text) if end == -1 else end)


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


def _joined_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order; those that touch are one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
