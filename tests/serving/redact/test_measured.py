"""Recall and precision over planted secrets of every kind and over lines that hold none."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

from serving.redact import Finding, SecretKind, find, redact
from tests.support.benign import PLACEHOLDERS, log_lines, source_lines
from tests.support.planted import Planted, planted

EACH = 150
BAR = 0.98
SEED = 20250301
MARK = re.compile(r"\[redacted:\w+\]")


@dataclass
class Tally:
    """What was planted and what was found of it, by kind; a finding of another kind is a false one."""

    planted: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    false_texts: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, text: str, values: list[Planted], findings: tuple[Finding, ...]) -> None:
        """`values` are the spans of `text` that hold something."""
        unexplained = list(findings)
        for value in values:
            self.planted[value.kind] += 1
            over = [f for f in findings if f.start < value.end and value.start < f.end]
            right = [f for f in over if f.kind == value.kind]
            self.found[value.kind] += any(f.start <= value.start and value.end <= f.end for f in right)
            unexplained = [f for f in unexplained if f not in right]
        for finding in unexplained:
            self.false[finding.kind] += 1
            self.false_texts[finding.kind].append(text[finding.start : finding.end])

    def recall(self, *kinds: str) -> float:
        return _share(sum(self.found[kind] for kind in kinds), sum(self.planted[kind] for kind in kinds))

    def precision(self, *kinds: str) -> float:
        found = sum(self.found[kind] for kind in kinds)
        return _share(found, found + sum(self.false[kind] for kind in kinds))

    def table(self) -> str:
        rows = [f"{'kind':28}{'planted':>8}{'recall':>8}{'false':>7}{'precision':>10}"]
        for kind in (*SecretKind, None):
            kinds = tuple(SecretKind) if kind is None else (kind,)
            rows.append(
                f"{kind or 'all':28}{sum(self.planted[k] for k in kinds):8}{self.recall(*kinds):8.4f}"
                f"{sum(self.false[k] for k in kinds):7}{self.precision(*kinds):10.4f}"
            )
        return "\n".join(rows)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def documents(values: list[Planted], *, size: int) -> list[tuple[str, list[Planted]]]:
    """`size` planted values a document, each between two lines of logs, with their places in the document."""
    logs = log_lines(SEED, 2 * len(values))
    made = []
    for at in range(0, len(values), size):
        text, places = "", []
        for value in values[at : at + size]:
            text += next(logs) + "\n"
            places.append(Planted(value.kind, value.text, len(text) + value.start, len(text) + value.end))
            text += value.text + "\n" + next(logs) + "\n"
        made.append((text, places))
    return made


@pytest.fixture(scope="module")
def benign() -> list[str]:
    """Ten thousand lines of logs and every line of the standard library."""
    return [*log_lines(SEED + 1, 10_000), *source_lines()]


@pytest.fixture(scope="module")
def false_alarms(benign: list[str]) -> tuple[str, tuple[Finding, ...]]:
    """The benign lines as one text, and what is found in it."""
    text = "\n".join(benign)
    return text, find(text)


@pytest.fixture(scope="module")
def tally(false_alarms: tuple[str, tuple[Finding, ...]]) -> Tally:
    """What is found in documents with planted values and in those without."""
    tally = Tally()
    for text, places in documents(list(planted(SEED, EACH)), size=50):
        tally.add(text, places, find(text))
    tally.add(false_alarms[0], [], false_alarms[1])
    for text in PLACEHOLDERS:
        tally.add(text, [], find(text))
    return tally


def test_every_kind_is_planted_and_there_are_more_than_25() -> None:
    kinds = {value.kind for value in planted(SEED, 1)}
    assert kinds == set(SecretKind)
    assert len(kinds) > 25


def test_recall_and_precision_hold_overall_and_for_every_kind(tally: Tally) -> None:
    print(tally.table())
    print({kind: texts[:5] for kind, texts in tally.false_texts.items()})
    assert sum(tally.planted.values()) == EACH * len(SecretKind)
    weak = {kind: (tally.recall(kind), tally.precision(kind)) for kind in SecretKind}
    assert {kind: bars for kind, bars in weak.items() if min(bars) < BAR} == {}
    assert tally.recall(*SecretKind) >= BAR
    assert tally.precision(*SecretKind) >= BAR


def test_a_line_without_a_secret_is_almost_never_touched(
    benign: list[str], false_alarms: tuple[str, tuple[Finding, ...]]
) -> None:
    text, findings = false_alarms
    touched = {text.count("\n", 0, finding.start) for finding in findings}
    print(f"{len(touched)} of {len(benign)} lines touched")
    assert len(benign) > 100_000
    assert len(touched) / len(benign) < 1e-4


def test_no_placeholder_is_taken_for_a_secret() -> None:
    assert [text for text in PLACEHOLDERS if redact(text).text != text] == []


def test_no_eight_characters_of_a_planted_secret_survive() -> None:
    left = []
    for value in planted(SEED + 3, 40):
        secret, cleaned = value.text[value.start : value.end], MARK.sub("", redact(value.text).text)
        around = value.text[: value.start] + "\n" + value.text[value.end :]
        pieces = {secret[at : at + 8] for at in range(len(secret) - 7)}
        if any(piece in cleaned and piece not in around for piece in pieces):
            left.append((value.kind, cleaned))
    assert left == []
