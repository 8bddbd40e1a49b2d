"""What holds for every text."""

from __future__ import annotations

import json
import re
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from serving.redact import Finding, SecretKind, find, redact
from serving.redact.rule import Source
from tests.support.benign import log_lines
from tests.support.planted import Planted, planted

VALUES = tuple(planted(11, 6))
SECRETS = st.sampled_from([value.text[value.start : value.end] for value in VALUES])
CARRIED = st.sampled_from([value.text for value in VALUES])
LOG = "\n".join(log_lines(5, 2_000)) + "\n"
MARK = re.compile(r"\[redacted:\w+\]")
MARKS = st.sampled_from([f"[redacted:{kind}]" for kind in SecretKind] + ["[redacted:", "redacted:email]"])
TEXT = st.text(st.characters(exclude_categories=()), max_size=40)  # lone surrogates, controls, every script
PIECES = st.lists(
    st.one_of(TEXT, SECRETS, CARRIED, MARKS, st.sampled_from("aA0_-.:=@+/\\\"' \n\x00")), max_size=8
)
TEXTS = PIECES.map("".join)


@settings(max_examples=400)
@given(TEXTS)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact(text)
    assert find(once.text) == ()
    assert redact(once.text).text == once.text


@settings(max_examples=200)
@given(TEXTS)
def test_findings_are_in_order_apart_and_inside_the_text(text: str) -> None:
    findings = find(text)
    assert findings == find(text)
    assert all(0 <= f.start < f.end <= len(text) for f in findings)
    assert all(one.end <= other.start for one, other in pairwise(findings))


@settings(max_examples=200)
@given(TEXTS)
def test_what_is_not_found_stays_byte_for_byte(text: str) -> None:
    cleaned, at, done = redact(text).text, 0, 0
    for finding in find(text):
        kept = text[done : finding.start] + f"[redacted:{finding.kind}]"
        assert cleaned.startswith(kept, at)
        at, done = at + len(kept), finding.end
    assert cleaned[at:] == text[done:]


@settings(max_examples=300)
@given(
    TEXTS.filter(lambda text: "PRIVATE KEY" not in text), TEXTS.filter(lambda text: "PRIVATE KEY" not in text)
)
def test_but_for_key_blocks_a_line_says_all_about_itself(one: str, other: str) -> None:
    shifted = tuple(Finding(f.kind, f.start + len(one) + 1, f.end + len(one) + 1) for f in find(other))
    assert find(one + "\n" + other) == find(one) + shifted


@settings(max_examples=30)
@given(st.lists(st.one_of(CARRIED, TEXT), min_size=1, max_size=3), st.integers(0, 200))
def test_a_finding_is_where_it_was_behind_pages_of_a_log(texts: list[str], skipped: int) -> None:
    text = "\n".join(texts)
    log = LOG[skipped:]
    shifted = tuple(Finding(f.kind, f.start + len(log), f.end + len(log)) for f in find(text))
    assert find(log + text) == find(log) + shifted


@settings(max_examples=300)
@given(st.sampled_from(VALUES), TEXT, TEXT, st.sampled_from(["\n", "\n\n", "\r\n"]))
def test_a_planted_secret_does_not_survive_whatever_lines_stand_around_it(
    value: Planted, before: str, after: str, gap: str
) -> None:
    secret = value.text[value.start : value.end]
    cleaned = MARK.sub("", redact(before + gap + value.text + gap + after).text)
    left = value.text[: value.start] + "\n" + value.text[value.end :] + before + after
    assert not any(
        secret[at : at + 8] in cleaned and secret[at : at + 8] not in left for at in range(len(secret) - 7)
    )


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(["a", "note", "id"]), st.one_of(CARRIED, TEXT), max_size=3))
def test_json_with_secrets_in_its_strings_is_json_afterwards(data: dict[str, str]) -> None:
    for ascii_only in (True, False):
        json.loads(redact(json.dumps(data, ensure_ascii=ascii_only)).text)


def test_small_letters_keep_every_character_at_its_place() -> None:
    every = "".join(map(chr, range(0x110000)))
    assert len(Source(every).lower) == len(every)


def test_benign_lines_come_back_as_they_were() -> None:
    changed = [line for line in log_lines(17, 5_000) if redact(line).text != line]
    assert len(changed) <= 3, changed  # a long number that happens to be a card number, check digit and all
