"""Data that says something about a person: addresses, and numbers of accounts, cards and telephones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from serving.redact.checks import has_iban_check_digits, iban_length, is_payment_card, is_us_ssn
from serving.redact.kinds import Finding
from serving.redact.kinds import SecretKind as Kind
from serving.redact.rule import Rule, Source, fresh, words

_LONGEST_LOCAL: Final = 64
"""Characters of an address before its `@` (RFC 5321, 4.5.3.1.1)."""
_DOMAIN: Final = re.compile(
    r"@(?:[A-Za-z0-9][A-Za-z0-9-]{0,62}\.){1,8}(?P<top>[A-Za-z]{2,18}|xn--[A-Za-z0-9-]{2,59})(?![A-Za-z0-9_(-])"
)
_TOP_LEVEL: Final = words(
    "academy aero agency app art asia bank biz blog cat cloud club com company coop corp design dev digital edu "
    "education email example finance foundation fun global gmbh gov group health home host icu info institute int "
    "internal international invalid jobs lan law life live local ltd mail media mil mobi money museum name net "
    "network news online org page post pro services shop site software solutions space store studio systems team "
    "tech tel test today top travel vip website work world xyz zone"
)
"""Top-level names of three letters and more: without a list `a@self.weight` would be an address."""
_NO_COUNTRY: Final = frozenset({"js", "ts"})
_USERINFO: Final = re.compile(r"://[^\s/@]*$")

# Patterns begin with a sign that is rare in text, or with two single classes, and look back from there: a search
# for a digit would stop at every third character of a log.
_IBAN: Final = re.compile(rf"[A-Z][A-Z]\d\d{fresh('....')}(?: ?[A-Z0-9]){{11,40}}")
_CARD: Final = re.compile(
    rf"[2-6]{fresh('.', after='A-Za-z0-9.-')}\d\d\d"
    r"(?:\d{10,12}|(?P<gap>[ -])(?:\d{4}(?P=gap)\d{4}(?P=gap)\d{4}|\d{6}(?P=gap)\d{4,5}))(?![A-Za-z0-9]|[.-]\d)"
)
_SSN: Final = re.compile(
    rf"-\d\d-(?<=\d\d\d-..-){fresh('...-..-', after='A-Za-z0-9_.-')}\d{{4}}(?![A-Za-z0-9_]|[.-]\d)"
)

_INTERNATIONAL: Final = re.compile(
    rf"\+{fresh('.', after='A-Za-z0-9_+)')}[1-9](?:[ ().-]{{0,2}}\d){{6,14}}(?<=\d\d)(?![A-Za-z0-9_]|\.\d)"
)
_NORTH_AMERICAN: Final = tuple(
    re.compile(rf"{gap}(?<=[2-9]\d\d{gap})\d{{4}}(?![A-Za-z0-9_]|[.-]\d)") for gap in ("-", r"\.")
)
_AREA: Final = re.compile(rf"{fresh('', after='A-Za-z0-9_.-')}(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[.-])$")
_CALLED: Final = tuple(
    re.compile(
        rf"{word}(?<![a-z]{word})(?:[_ -]?(?:number|num|no|nr))?[\"' \t:=.]{{1,6}}"
        r"(?P<value>[(+]?\d(?:[ ().-]{0,2}\d){6,14})(?![a-z0-9_])"
    )
    for word in ("phone", "telephone", "tel", "mobile", "fax")
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_COUNTRY_CODES: Final = words(
    "20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 62 63 64 65 66 81 82 84 86 "
    "90 91 92 93 94 95 98 211 212 213 216 218 220 221 222 223 224 225 226 227 228 229 230 231 232 233 234 235 236 "
    "237 238 239 240 241 242 243 244 245 246 247 248 249 250 251 252 253 254 255 256 257 258 260 261 262 263 264 "
    "265 266 267 268 269 290 291 297 298 299 350 351 352 353 354 355 356 357 358 359 370 371 372 373 374 375 376 "
    "377 378 380 381 382 383 385 386 387 389 420 421 423 500 501 502 503 504 505 506 507 508 509 590 591 592 593 "
    "594 595 596 597 598 599 670 672 673 674 675 676 677 678 679 680 681 682 683 685 686 687 688 689 690 691 692 "
    "800 808 850 852 853 855 856 870 878 880 881 882 883 886 888 960 961 962 963 964 965 966 967 968 970 971 972 "
    "973 974 975 976 977 979 992 993 994 995 996 998"
)
"""Codes of ITU-T E.164 but 1 and 7, whose numbers have a length of their own."""


def _emails(source: Source) -> Iterator[Finding]:
    text = source.text
    for match in _DOMAIN.finditer(text):
        top = match["top"]
        known = len(top) == 2 and top.lower() not in _NO_COUNTRY and (top.islower() or top.isupper())
        if not (known or top.lower() in _TOP_LEVEL or top.startswith("xn--")):
            continue
        start = _start_of_local(text, match.start())
        if start == match.start() or _USERINFO.search(text, max(0, start - 256), start):
            continue  # nobody, or the user of a URL
        if text.startswith("git@", start) and text.startswith(":", match.end()):
            continue  # where a repository lies
        yield Finding(Kind.EMAIL, start, match.end())


def _start_of_local(text: str, at: int) -> int:
    start = at
    while start > max(0, at - _LONGEST_LOCAL) and _is_local(text[start - 1]):
        start -= 1
    if text[start : start + 1] in {"n", "r", "t"} and text[start - 1 : start] == "\\":
        start += 1  # the end of an escape
    while start < at and text[start] in ".-+%":
        start += 1
    return start


def _is_local(char: str) -> bool:
    # Latin letters with marks stand in addresses too; other scripts run on into the sentence around one.
    return char in "._%+-" or (char < "\u0250" and char.isalnum())


def _ibans(source: Source) -> Iterator[Finding]:
    for match in _at_every_start(_IBAN, source.text):
        length = iban_length(match[0][:2])
        if length is None:
            continue
        end = match.start()
        for _ in range(length):  # a blank may stand between two characters, and a word behind the last
            end += 2 if source.text[end : end + 1] == " " else 1
        iban = source.text[match.start() : end].replace(" ", "")
        ended = not source.text[end : end + 1].isalnum()
        if end <= match.end() and ended and has_iban_check_digits(iban):
            yield Finding(Kind.IBAN, match.start(), end)


def _cards(source: Source) -> Iterator[Finding]:
    for match in _at_every_start(_CARD, source.text):
        if is_payment_card(_digits(match[0])):
            yield Finding(Kind.PAYMENT_CARD, *match.span())


def _ssns(source: Source) -> Iterator[Finding]:
    for match in _SSN.finditer(source.text):
        start = match.start() - 3
        if is_us_ssn(*source.text[start : match.end()].split("-")):
            yield Finding(Kind.US_SSN, start, match.end())


def _international(source: Source) -> Iterator[Finding]:
    for match in _INTERNATIONAL.finditer(source.text):
        if _is_e164(_digits(match[0])):
            yield Finding(Kind.PHONE, *match.span())


def _north_american(source: Source) -> Iterator[Finding]:
    for pattern in _NORTH_AMERICAN:
        for match in pattern.finditer(source.text):
            exchange = match.start() - 3
            # Two characters more than the longest area code: a sign before it, and one before that.
            area = _AREA.search(source.text, max(0, exchange - 10), exchange)
            if area is not None:
                yield Finding(Kind.PHONE, area.start(), match.end())


def _called(source: Source) -> Iterator[Finding]:
    """National numbers, which only the word before them tells from other numbers."""
    for pattern in _CALLED:
        for match in pattern.finditer(source.lower):
            digits = _digits(match["value"])
            if len(set(digits)) > 2 and not _DATE.match(match["value"]):
                yield Finding(Kind.PHONE, *match.span("value"))


def _at_every_start(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Matches that may overlap: what only looks like one must not hide the one that begins inside it."""
    match = pattern.search(text)
    while match is not None:
        yield match
        match = pattern.search(text, match.start() + 1)


def _digits(value: str) -> str:
    return "".join(char for char in value if char.isdigit())


def _is_e164(digits: str) -> bool:
    if digits.startswith("1"):
        return len(digits) == 11 and digits[1] in "23456789" and digits[4] in "23456789"
    if digits.startswith("7"):
        return len(digits) == 11
    return 9 <= len(digits) <= 15 and not _COUNTRY_CODES.isdisjoint({digits[:2], digits[:3]})


_PHONE: Final = frozenset({Kind.PHONE})

PERSONAL_DATA: Final = (
    Rule(frozenset({Kind.IBAN}), _ibans),
    Rule(frozenset({Kind.PAYMENT_CARD}), _cards),
    Rule(frozenset({Kind.US_SSN}), _ssns),
    Rule(frozenset({Kind.EMAIL}), _emails),
    Rule(_PHONE, _international),
    Rule(_PHONE, _north_american),
    Rule(_PHONE, _called),
)
