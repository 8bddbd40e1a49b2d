"""What is found and what is left, one decision a test."""

from __future__ import annotations

import pytest

from serving.redact import (
    PERSONAL,
    Finding,
    Redaction,
    Redactor,
    SecretKind,
    SecretRedactor,
    find,
    kinds_in,
    redact,
)
from tests.support.planted import planted

GITHUB = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"


def test_a_finding_has_a_kind_and_a_place_and_no_value() -> None:
    text = f"token {GITHUB} here"
    assert find(text) == (Finding(SecretKind.GITHUB_TOKEN, 6, 46),)
    assert GITHUB not in repr(find(text))


def test_the_mark_names_the_kind_and_the_answer_lists_the_kinds_sorted() -> None:
    redaction = redact(f"mail ana@acme.io, use {GITHUB} or ana@acme.io")
    assert redaction == Redaction(
        "mail [redacted:email], use [redacted:github_token] or [redacted:email]", ("email", "github_token")
    )
    assert kinds_in("ana@acme.io " + GITHUB) == ("email", "github_token")


def test_the_redactor_fulfils_the_protocol_and_can_be_narrowed() -> None:
    redactor: Redactor = SecretRedactor(kinds=frozenset(SecretKind) - PERSONAL)
    assert redactor.redact(f"ana@acme.io {GITHUB}") == Redaction(
        "ana@acme.io [redacted:github_token]", ("github_token",)
    )


def test_a_clean_text_is_the_very_same_text() -> None:
    text = "nothing to see\r\n\tat all \ud800\x00"
    assert redact(text).text is text


def test_a_documented_example_key_has_the_form_of_a_key_and_is_taken_out() -> None:
    assert kinds_in("AKIAIOSFODNN7EXAMPLE") == ("aws_access_key_id",)
    assert kinds_in("aws_secret_access_key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY") == (
        "aws_secret_access_key",
    )


def test_the_named_kind_wins_over_the_place_in_which_it_stands() -> None:
    assert kinds_in(f"GITHUB_TOKEN={GITHUB}") == ("github_token",)
    assert kinds_in(f'Authorization: Bearer "{GITHUB}"') == ("github_token",)
    assert kinds_in(f"https://ci:{GITHUB}@github.com/acme/app") == ("github_token",)


def test_user_and_host_of_a_url_stay_readable() -> None:
    assert redact("postgres://app:s3cr3t@db.acme.io:5432/app").text == (
        "postgres://app:[redacted:database_password]@db.acme.io:5432/app"
    )


def test_json_stays_json_after_an_escape() -> None:
    assert redact(r'{"a": "to\nana@acme.io\nfrom"}').text == r'{"a": "to\n[redacted:email]\nfrom"}'
    assert redact(rf'{{"a": "x\n{GITHUB}\ny"}}').text == r'{"a": "x\n[redacted:github_token]\ny"}'


def test_a_password_is_taken_from_json_inside_json() -> None:
    assert redact(r'{"log": "{\"password\": \"hunter2!x\"}"}').text == (
        r'{"log": "{\"password\": \"[redacted:password]\"}"}'
    )


def test_half_a_private_key_is_a_private_key() -> None:
    (key,) = (value for value in planted(3, 1) if value.kind == "private_key")
    block = key.text[key.start : key.end]
    torn = "\n".join(block.splitlines()[:-2])
    assert (
        redact(torn + "\n\nnext").text == "[redacted:private_key]\n\nnext" or "next" not in redact(torn).text
    )
    assert block.splitlines()[1] not in redact(torn).text


def test_a_public_key_or_a_certificate_is_no_secret() -> None:
    for label in ("PUBLIC KEY", "CERTIFICATE", "RSA PUBLIC KEY"):
        text = f"-----BEGIN {label}-----\n{'MIIBIjANBgkqhkiG9w0B' * 4}\n-----END {label}-----"
        assert find(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "378282246310005",
        "5555555555554444",
    ],
)
def test_a_card_needs_its_check_digit(text: str) -> None:
    assert kinds_in(f"paid with {text}.") == ("payment_card",)
    wrong = text[:-1] + str((int(text[-1]) + 1) % 10)
    assert kinds_in(f"paid with {wrong}.") == ()


def test_an_iban_needs_its_check_digits_and_the_length_of_its_country() -> None:
    assert redact("to DE89 3704 0044 0532 0130 00 EUR").text == "to [redacted:iban] EUR"
    assert kinds_in("DE88 3704 0044 0532 0130 00") == ()
    assert kinds_in("DE89 3704 0044 0532 0130") == ()


def test_a_number_that_only_looks_like_an_iban_does_not_hide_the_one_inside() -> None:
    assert kinds_in("ID12 DE89 3704 0044 0532 0130 00") == ("iban",)


def test_a_social_security_number_must_be_one_that_is_issued() -> None:
    assert kinds_in("ssn 078-05-1120") == ("us_ssn",)
    for never in ("000-12-3456", "666-12-3456", "900-12-3456", "123-00-4567", "123-45-0000"):
        assert kinds_in(f"ssn {never}") == ()


def test_a_jwt_needs_a_header_that_names_an_algorithm() -> None:
    assert kinds_in("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlMTIz") == ("jwt",)
    assert kinds_in("eyJmb28iOiAiYmFyIn0x.eyJzdWIiOiIxIn0.c2lnbmF0dXJlMTIz") == ()


def test_a_local_number_is_a_telephone_only_where_a_word_says_so() -> None:
    assert redact("phone: 020 7946 0958").text == "phone: [redacted:phone]"
    assert kinds_in("order 020 7946 0958") == ()


def test_an_address_of_a_service_or_a_repository_is_no_persons() -> None:
    for text in (
        "user@1000.service",
        "git@github.com:acme/app.git",
        "x = a@self.weight",
        "icon@2x.png",
        "v@1.2.3",
    ):
        assert find(text) == ()


@pytest.mark.parametrize(
    "before", ["x", "ana@acme.io", "AKIAIOSFODNN7EXAMPLE", "-----", "a=b", "\u00e9", "4111111111111111"]
)
@pytest.mark.parametrize("after", ["", "x", "Q9", "_", "-a@b.co"])
def test_a_token_is_found_whatever_is_glued_to_it(before: str, after: str) -> None:
    assert "A1b2C3d4" not in redact(before + GITHUB + after).text


def test_a_mark_is_never_part_of_a_finding() -> None:
    text = "password=ab[redacted:email]xy12!q"
    assert redact(text).text == "password=[redacted:password][redacted:email][redacted:password]"
    assert [text[f.start : f.end] for f in find(text)] == ["ab", "xy12!q"]


def test_a_line_that_keeps_giving_is_taken_whole() -> None:
    text = "first\n" + "ToKen=" * 400 + "\nlast"
    assert redact(text).text == "first\n[redacted:credential]\nlast" or "ToKen=" * 20 not in redact(text).text
    assert redact(redact(text).text) == Redaction(redact(text).text)
