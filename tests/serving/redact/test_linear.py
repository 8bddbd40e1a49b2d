"""Four times the text is about four times the work, for texts made to be slow."""

from __future__ import annotations

import time

import pytest

from serving.redact import SecretKind, find, redact
from tests.support.planted import planted

PREFIXES = (
    *("A", "AKIA", "AC", "ghp_", "github_pat_", "glpat-", "npm_", "hf_", "sk-", "sk-ant-", "sk-proj-", "xoxb-", "SG."),
    *("AIza", "ya29.", "hvs.", "whsec_", "EAAA", "eyJ", "eyJhbGciOiJIUzI1NiJ9.", "Q~", "aaaQ~", "-us", "key-", "dapi"),
    *("@", "a@", "a@b.", "a.", "a-", "+", "+1 ", "+1-", "1-", "123-", "123-45-", "4111 ", "4111", "DE00 ", "DE"),
    *("://", "://a:", "://a:b@", "a:", ":", "::", "password=", "password='", "token=", "ToKen=", "--token "),
    *("key:", "pass:", "tel"),
    *("secret_access_key", "aws_secret ", "bearer ", "Basic ", "authorization: ", "sig=", "&sig=", "phone: "),
    *("-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----"),
    *("-", "-----", "\\", "\\n", "%3D", "'", '"', "\n", " ", "\x00", "[redacted:", "[redacted:email]", "\u0130"),
    "\ud800",
    *("12345678:", "M", "MTIz.", "hooks.slack.com/services/", "discord.com/api/webhooks/", "accountkey=", "sharedkey="),
)  # fmt: skip
STEMS = ("a", "A", "0", "7", "aB3", "a.", "a_", "+/", "=", "x9")


def seconds(text: str) -> float:
    """The processor's time for one search, the better of two."""
    best = float("inf")
    for _ in range(2):
        before = time.process_time()
        find(text)
        best = min(best, time.process_time() - before)
    return best


def grows(shape: str, size: int) -> float:
    """How much longer four times the text takes; a few tries, for the machine is not ours alone."""
    ratio = float("inf")
    for _ in range(4):
        short, long = shape * (size // len(shape)), shape * (4 * size // len(shape))
        ratio = min(ratio, seconds(long) / max(seconds(short), 1e-4))
        if ratio < 8:
            break
    return ratio


@pytest.mark.parametrize("shape", [*PREFIXES, *STEMS])
def test_repeating_a_beginning_costs_no_more_than_it_is_long(shape: str) -> None:
    # Linear is 4, quadratic is 16.
    assert grows(shape, 20_000) < 8


@pytest.mark.parametrize("stem", STEMS)
def test_a_beginning_before_every_long_run_costs_no_more_than_it_is_long(stem: str) -> None:
    shape = "".join(prefix + stem * (200 // len(stem)) + "\n" for prefix in PREFIXES)
    assert grows(shape, len(shape)) < 8


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_beginning_before_one_endless_run_costs_no_more_than_it_is_long(prefix: str) -> None:
    for stem in ("aB3", "0", prefix + "aB3"):
        short, long = prefix + stem * (20_000 // len(stem)), prefix + stem * (80_000 // len(stem))
        assert any(seconds(long) / max(seconds(short), 1e-4) < 8 for _ in range(4)), stem


@pytest.mark.parametrize("kind", list(SecretKind))
def test_secrets_glued_to_each_other_cost_no_more_than_they_are_long(kind: SecretKind) -> None:
    values = [value.text[value.start : value.end] for value in planted(7, 1) if value.kind == kind]
    others = [value.text[value.start : value.end] for value in planted(8, 1)]
    shape = "".join(value + other for value in values for other in others)
    assert grows(shape, len(shape)) < 8


@pytest.mark.full
@pytest.mark.parametrize("shape", [*PREFIXES, *STEMS])
def test_megabytes_of_a_beginning_are_still_linear(shape: str) -> None:
    assert grows(shape, 1_000_000) < 8


def test_one_text_of_megabytes_with_everything_in_it_comes_back_clean() -> None:
    text = "\n".join(value.text for value in planted(9, 40)) + "\n" + "a" * 1_000_000
    cleaned = redact(text)
    assert set(cleaned.removed) == set(SecretKind)
    assert redact(cleaned.text).text == cleaned.text
