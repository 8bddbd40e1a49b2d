"""Secrets and personal data made by the formats that their issuers publish.

Nothing here knows how the detector looks for them: alphabets, lengths and check digits are written down from
the issuers' pages, which are named where a form is not obvious from its prefix.
"""

from __future__ import annotations

import base64
import json
import string
import textwrap
import zlib
from collections.abc import Callable, Mapping
from random import Random

LETTERS, DIGITS, HEX = string.ascii_letters, string.digits, "0123456789abcdef"
ALNUM, UPPER, LOWER = LETTERS + DIGITS, string.ascii_uppercase, string.ascii_lowercase
URLSAFE, BASE64 = ALNUM + "-_", ALNUM + "+/"
BASE62 = DIGITS + UPPER + LOWER

Make = Callable[[Random], str]


def of(alphabet: str, *lengths: int) -> Make:
    """Draws a text of one of the lengths."""
    return lambda r: "".join(r.choices(alphabet, k=r.choice(lengths)))


def joined(*parts: str | Make) -> Make:
    """Literals and draws, one behind the other."""
    return lambda r: "".join(_drawn(part, r) for part in parts)


def one_of(*parts: str | Make) -> Make:
    """One of several forms."""
    return lambda r: _drawn(r.choice(parts), r)


def _drawn(part: str | Make, r: Random) -> str:
    return part if isinstance(part, str) else part(r)


def with_crc(prefix: str) -> Make:
    """Thirty characters and their CRC32 in base 62 (GitHub, "Behind GitHub's new authentication token formats")."""

    def make(r: Random) -> str:
        body, check = of(ALNUM, 30)(r), ""
        rest = zlib.crc32(body.encode())
        for _ in range(6):
            rest, digit = divmod(rest, 62)
            check = BASE62[digit] + check
        return prefix + body + check

    return make


def unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def pypi(r: Random) -> str:
    """A version 2 macaroon of the index (warehouse, "API tokens")."""
    place = r.choice([b"pypi.org", b"test.pypi.org"])
    return "pypi-" + unpadded(bytes([2, 1, len(place)]) + place + b"\x02\x24" + r.randbytes(100))


def discord(r: Random) -> str:
    """User id in base64, time, signature (Discord, "Reference")."""
    user = unpadded(str(r.randrange(10**17, 10**18)).encode())
    return f"{user}.{of(URLSAFE, 6)(r)}.{of(URLSAFE, 27, 38)(r)}"


def jwt(r: Random) -> str:
    """RFC 7519 with the signature of HS256 or RS256."""
    alg, size = r.choice([("HS256", 32), ("RS256", 256), ("ES256", 64)])
    header, payload = {"alg": alg, "typ": "JWT"}, {"sub": str(r.randrange(10**9)), "iat": 1_700_000_000}
    parts = (json.dumps(header).encode(), json.dumps(payload).encode(), r.randbytes(size))
    return ".".join(map(unpadded, parts))


def age(r: Random) -> str:
    """Bech32 of 32 bytes (C2SP, "age-encryption.org/v1"; BIP 173)."""
    alphabet, prefix = "qpzry9x8gf2tvdw0s3jn54khce6mua7l", "age-secret-key-"
    bits = int.from_bytes(r.randbytes(32), "big") << 4
    data = [bits >> 5 * place & 31 for place in reversed(range(52))]
    state = 1
    for value in [*(ord(c) >> 5 for c in prefix), 0, *(ord(c) & 31 for c in prefix), *data, 0, 0, 0, 0, 0, 0]:
        top, state = state >> 25, (state & 0x1FFFFFF) << 5 ^ value
        for place, term in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            state ^= term if top >> place & 1 else 0
    check = [(state ^ 1) >> 5 * (5 - place) & 31 for place in range(6)]
    return (prefix + "1" + "".join(alphabet[value] for value in [*data, *check])).upper()


def armour(label: str, size: int, *, head: bytes = b"", headers: str = "") -> Make:
    """A key between its lines of dashes, 64 characters a line (RFC 7468)."""

    def make(r: Random) -> str:
        body = base64.b64encode(head + r.randbytes(size - len(head))).decode()
        lines = [
            f"-----BEGIN {label}-----",
            *headers.splitlines(),
            *textwrap.wrap(body, 64),
            f"-----END {label}-----",
        ]
        return "\n".join(lines)

    return make


def luhn(prefix: str, length: int) -> Make:
    """A number with its check digit (ISO/IEC 7812-1, annex B), bare or in the groups that are embossed."""

    def make(r: Random) -> str:
        body = prefix + of(DIGITS, length - len(prefix) - 1)(r)
        total = sum(sum(divmod(int(d) * (2 - place % 2), 10)) for place, d in enumerate(reversed(body)))
        number = body + str(-total % 10)
        gap = r.choice(["", " ", "-"])
        if length == 15:
            return gap.join((number[:4], number[4:10], number[10:]))
        return gap.join(number[at : at + 4] for at in range(0, length, 4))

    return make


IBAN_FORMS = {
    "AT": "n" * 16,
    "BE": "n" * 12,
    "BR": "n" * 23 + "ac",
    "CH": "n" * 5 + "c" * 12,
    "DE": "n" * 18,
    "ES": "n" * 20,
    "FR": "n" * 10 + "c" * 11 + "nn",
    "GB": "aaaa" + "n" * 14,
    "IT": "a" + "n" * 10 + "c" * 12,
    "MT": "aaaa" + "n" * 5 + "c" * 18,
    "NL": "aaaa" + "n" * 10,
    "NO": "n" * 11,
    "PL": "n" * 24,
    "SE": "n" * 20,
}
"""Country codes and structures of accounts (SWIFT, IBAN registry): digits, capitals, either."""


def iban(r: Random) -> str:
    country, form = r.choice(sorted(IBAN_FORMS.items()))
    account = "".join(r.choice({"n": DIGITS, "a": UPPER, "c": DIGITS + UPPER}[sign]) for sign in form)
    value = "".join(str(BASE62.index(char)) for char in account + country + "00")
    number = f"{country}{98 - int(value) % 97:02}{account}"
    return number if r.random() < 0.5 else " ".join(textwrap.wrap(number, 4))


def ssn(r: Random) -> str:
    """As issued by the Social Security Administration: no 000, 666, 9xx; no 00; no 0000."""
    area = r.choice([area for area in range(1, 900) if area != 666])
    return f"{area:03}-{r.randrange(1, 100):02}-{r.randrange(1, 10_000):04}"


EMAIL_NAMES = "maria.gomez li-wei k_schmidt ana tom+lists info24 r.d.patel zoë".split()  # noqa: SIM905
EMAIL_HOSTS = "gmail.com web.de mail.corp.internal uni-bonn.de acme.io nhs.uk example.org t.co".split()  # noqa: SIM905


def email(r: Random) -> str:
    """An address as people have them (RFC 5321)."""
    return f"{r.choice(EMAIL_NAMES)}{r.randrange(100)}@{r.choice(EMAIL_HOSTS)}"


def phone(r: Random) -> str:
    """E.164, and the ways in which the North American plan and other countries write their numbers."""
    area, exchange, line = (
        f"{r.randrange(201, 980)}",
        f"{r.randrange(200, 1000)}",
        f"{r.randrange(10_000):04}",
    )
    digits = of(DIGITS, 10)(r)
    forms = (
        f"+1{area}{exchange}{line}",
        f"+1 {area} {exchange} {line}",
        f"+1-{area}-{exchange}-{line}",
        f"({area}) {exchange}-{line}",
        f"{area}-{exchange}-{line}",
        f"1-{area}-{exchange}-{line}",
        f"{area}.{exchange}.{line}",
        f"+44 20 {digits[:4]} {digits[4:8]}",
        f"+49 (0)30 {digits[:7]}",
        f"+49151{digits[:8]}",
        f"+33 6 {digits[:2]} {digits[2:4]} {digits[4:6]} {digits[6:8]}",
        f"+91 {digits[:5]} {digits[5:]}",
        f"+86 138 {digits[:4]} {digits[4:8]}",
        f"+353 86 {digits[:3]} {digits[3:7]}",
    )
    return r.choice(forms)


PASSWORD_SIGNS = "!@#$%^*-_+?="


def password(r: Random) -> str:
    """What a password manager makes: every class, any order."""
    drawn = [r.choice(LOWER), r.choice(UPPER), r.choice(DIGITS), r.choice("!@#%^*+?")]
    drawn += r.choices(LETTERS + DIGITS + PASSWORD_SIGNS, k=r.randrange(8, 17))
    r.shuffle(drawn)
    return r.choice(LETTERS) + "".join(drawn) + r.choice(ALNUM)


TOKENS: Mapping[str, Make] = {
    # AWS, "IAM identifiers": a prefix and base 32.
    "aws_access_key_id": joined(one_of("AKIA", "ASIA"), of(UPPER + "234567", 16)),
    # Microsoft Purview, "Microsoft Entra client secret": three characters, a digit, `Q~`, 34 more.
    "azure_client_secret": joined(of(ALNUM, 3), of(DIGITS, 1), "Q~", of(ALNUM + "-_.~", 33), of(ALNUM, 1)),
    "google_api_key": joined("AIza", of(URLSAFE, 34), of(ALNUM, 1)),
    "google_access_token": joined("ya29.", of(URLSAFE, 120, 180, 215)),
    "google_client_secret": joined("GOCSPX-", of(URLSAFE, 27), of(ALNUM, 1)),
    "databricks_token": joined("dapi", of(HEX, 32), one_of("", "-2", "-3")),
    "digitalocean_token": joined(one_of("dop", "doo", "dor"), "_v1_", of(HEX, 64)),
    "grafana_token": joined("glsa_", of(ALNUM, 32), "_", of(HEX, 8)),
    # HashiCorp, "Tokens": service, batch and recovery tokens.
    "vault_token": one_of(joined("hvs.", of(URLSAFE, 24, 91, 95)), joined("hvb.", of(URLSAFE, 138, 212))),
    "age_secret_key": age,
    "docker_token": joined("dckr_pat_", of(URLSAFE, 27)),
    "github_token": one_of(*(with_crc(f"gh{kind}_") for kind in "pousr")),
    "github_fine_grained_token": joined("github_pat_", of(ALNUM, 22), "_", of(ALNUM, 59)),
    # GitLab, "Token overview": the older form, and the routable one with version, length and checksum.
    "gitlab_token": one_of(
        joined(one_of("glpat-", "gldt-", "glrt-", "glft-"), of(URLSAFE, 20)),
        joined("glpat-", of(URLSAFE, 27, 60), ".", of(LOWER + DIGITS, 2), ".", of(LOWER + DIGITS, 9)),
    ),
    "npm_token": with_crc("npm_"),
    "pypi_token": pypi,
    "rubygems_key": joined("rubygems_", of(HEX, 48)),
    "anthropic_key": joined(one_of("sk-ant-api03-", "sk-ant-admin01-"), of(URLSAFE, 93), "AA"),
    "groq_key": joined("gsk_", of(ALNUM, 52)),
    "huggingface_token": joined("hf_", of(LETTERS, 34)),
    "openai_key": one_of(
        joined("sk-", of(ALNUM, 20), "T3BlbkFJ", of(ALNUM, 20)),
        joined(
            one_of("sk-proj-", "sk-svcacct-", "sk-admin-"),
            of(URLSAFE, 58, 74),
            "T3BlbkFJ",
            of(URLSAFE, 58, 74),
        ),
    ),
    "replicate_token": joined("r8_", of(ALNUM, 37)),
    "discord_token": discord,
    "mailchimp_key": joined(of(HEX, 32), "-us", one_of(*map(str, range(1, 22)))),
    "mailgun_key": one_of(joined("key-", of(HEX, 32)), joined(of(HEX, 32), "-", of(HEX, 8), "-", of(HEX, 8))),
    "sendgrid_key": joined("SG.", of(URLSAFE, 22), ".", of(URLSAFE, 43)),
    # Slack, "Tokens": bot, user, app-level, and the rotating ones.
    "slack_token": one_of(
        joined("xoxb-", of(DIGITS, 12, 13), "-", of(DIGITS, 12, 13), "-", of(ALNUM, 24)),
        joined(
            "xoxp-", of(DIGITS, 12, 13), "-", of(DIGITS, 12, 13), "-", of(DIGITS, 12, 13), "-", of(HEX, 32)
        ),
        joined("xapp-1-A", of(UPPER + DIGITS, 10), "-", of(DIGITS, 13), "-", of(HEX, 64)),
        joined("xoxe-1-", of(ALNUM, 146)),
        joined("xoxe.xoxp-1-", of(ALNUM, 160)),
    ),
    # Telegram, "Bot API": the number of the bot, a colon, 35 characters.
    "telegram_bot_token": joined(of("123456789", 1), of(DIGITS, 7, 8, 9), ":AA", of(URLSAFE, 33)),
    "twilio_sid": joined(one_of("AC", "SK"), of(HEX, 32)),
    "linear_key": joined("lin_api_", of(ALNUM, 40)),
    "notion_token": one_of(joined("ntn_", of(DIGITS, 11), of(ALNUM, 35)), joined("secret_", of(ALNUM, 43))),
    "postman_key": joined("PMAK-", of(HEX, 24), "-", of(HEX, 34)),
    "shopify_token": joined(one_of("shpat_", "shpca_", "shppa_", "shpss_"), of(HEX, 32)),
    "square_token": one_of(
        joined("EAAA", of(URLSAFE, 60)),
        joined("sq0csp-", of(URLSAFE, 43)),
        joined("sq0atp-", of(URLSAFE, 22)),
    ),
    "stripe_key": joined(one_of("sk", "rk"), one_of("_live_", "_test_"), of(ALNUM, 24, 99)),
    "stripe_webhook_secret": joined("whsec_", of(ALNUM, 32)),
    "jwt": jwt,
    "iban": iban,
    "payment_card": one_of(
        *(luhn(prefix, 16) for prefix in ("4", "51", "55", "2221", "2720", "6011", "65", "3530")),
        *(luhn(prefix, 15) for prefix in ("34", "37")),
    ),
    "us_ssn": ssn,
    "email": email,
    "phone": phone,
}


def basic(r: Random) -> str:
    return base64.b64encode(f"{r.choice(['admin', 'svc-deploy', 'maria'])}:{password(r)}".encode()).decode()


SSH_HEAD = b"openssh-key-v1\0"
ENCRYPTED = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0A1B2C3D\n\n"

BLOCKS: Mapping[str, Make] = {
    "ssh_private_key": one_of(
        armour("OPENSSH PRIVATE KEY", 290, head=SSH_HEAD),
        armour("OPENSSH PRIVATE KEY", 1800, head=SSH_HEAD),
    ),
    "private_key": one_of(
        armour("RSA PRIVATE KEY", 1190),
        armour("RSA PRIVATE KEY", 1190, headers=ENCRYPTED),
        armour("EC PRIVATE KEY", 121),
        armour("PRIVATE KEY", 48),
        armour("PRIVATE KEY", 1217),
        armour("ENCRYPTED PRIVATE KEY", 1300),
    ),
    "pgp_private_key": armour("PGP PRIVATE KEY BLOCK", 900, headers="Version: GnuPG v2\n\n"),
}
