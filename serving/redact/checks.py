"""What tells a secret from a word of the same shape: check digits, structure, randomness.

A check digit decides where the shape alone is ambiguous (sixteen digits may be anything). Behind a prefix that
means one thing only (`ghp_`) it is not asked: a mistyped token still gives most of the real one away.
"""

from __future__ import annotations

import base64
import json
import re
import string
from itertools import permutations
from typing import Final

_LOOKED_AT: Final = 256
"""Characters of a value that are judged, so that the cost of a judgement has a bound."""

_IBAN_LENGTHS: Final = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27,
    "BR": 29, "BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28,
    "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23,
    "GL": 18, "GR": 27, "GT": 28, "HN": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26,
    "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21,
    "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28,
    "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22,
    "RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27, "SO": 23, "ST": 25,
    "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20, "YE": 30,
}  # fmt: skip
"""Characters of an IBAN by country (ISO 13616, the registry of SWIFT)."""

_CARD_PREFIXES: Final = (
    (16, ("4", "6011", "644", "645", "646", "647", "648", "649", "65", "62")),
    (16, ("51", "52", "53", "54", "55")),
    (15, ("34", "37")),
    (14, ("300", "301", "302", "303", "304", "305", "36", "38", "39")),
)

_CLASSES: Final = {"a": "lower", "A": "upper", "0": "digit", "!": "symbol"}
_PAIRS: Final = tuple(map("".join, permutations(_CLASSES, 2)))
"""A text of signs has no two of the same pair that overlap, so that counting each finds every change."""
_TO_SIGNS: Final = str.maketrans(
    string.ascii_lowercase + string.ascii_uppercase + string.digits,
    "a" * 26 + "A" * 26 + "0" * 10,
    "-_./=",
)
_NO_SIGN: Final = re.compile("[^aA0]")


def iban_length(country: str) -> int | None:
    """How many characters an IBAN of `country` has; None where there are none."""
    return _IBAN_LENGTHS.get(country)


def has_iban_check_digits(iban: str) -> bool:
    """Whether the remainder is 1 (ISO 7064, mod 97-10), letters read as 10 to 35; `iban` in capitals."""
    return int("".join(str(int(char, 36)) for char in iban[4:] + iban[:4])) % 97 == 1


def has_luhn_digit(digits: str) -> bool:
    """Whether the last digit checks the others (ISO/IEC 7812, Luhn)."""
    odd = sum(int(digit) for digit in digits[-1::-2])
    even = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (odd + even) % 10 == 0


def is_payment_card(digits: str) -> bool:
    """Whether an issuer's range, its length and the check digit agree.

    Visa's forms of 13 and 19 digits are left out: the first is gone from circulation, and the second cannot be
    told from the random 64-bit numbers of which logs are full.
    """
    issued = any(len(digits) == length and digits.startswith(prefixes) for length, prefixes in _CARD_PREFIXES)
    mastercard_2 = len(digits) == 16 and 2221 <= int(digits[:4]) <= 2720
    jcb = len(digits) == 16 and 3528 <= int(digits[:4]) <= 3589
    return (issued or mastercard_2 or jcb) and has_luhn_digit(digits)


def is_us_ssn(area: str, group: str, serial: str) -> bool:
    """Whether the Social Security Administration can have given out the number."""
    return area not in {"000", "666"} and area < "900" and group != "00" and serial != "0000"


def decoded(value: str) -> bytes | None:
    """The bytes behind base64 of either alphabet, padded or not; None where it is none."""
    bare = value.rstrip("=")
    altchars = b"-_" if "-" in bare or "_" in bare else b"+/"
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=altchars, validate=True)
    except ValueError:  # binascii.Error is one
        return None


def is_jose_header(segment: str) -> bool:
    """Whether base64url holds the header of a JWT: a JSON object that names an algorithm (RFC 7515)."""
    header = decoded(segment) if len(segment) <= 4096 else None
    if header is None:
        return False
    try:
        value = json.loads(header)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and ("alg" in value or "enc" in value)


def classes_of(value: str) -> frozenset[str]:
    """Which of `lower`, `upper`, `digit` and `symbol` occur; `-_./=` join words and do not count as symbols."""
    return frozenset(_CLASSES[sign] for sign in set(_signs(value)))


def is_random(value: str, *, share: float = 0.16) -> bool:
    """Whether a value looks drawn rather than written.

    Drawn text changes between capitals, small letters and digits at every second or third character, names and
    words hardly ever: at `share` of the characters or more. Nor does it repeat a few characters, as `xxxx` does.
    """
    head = value[:_LOOKED_AT]
    if len(set(head)) < min(8, 0.3 * len(head) + 2):
        return False
    signs = _signs(head)
    return sum(map(signs.count, _PAIRS)) >= share * len(signs)


def _signs(value: str) -> str:
    """One sign for the class of each character that is judged."""
    return _NO_SIGN.sub("!", value[:_LOOKED_AT].translate(_TO_SIGNS))
