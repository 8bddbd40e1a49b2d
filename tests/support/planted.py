"""Secrets of published formats, planted in what carries them: environment files, logs, JSON, code, URLs, prose."""

from __future__ import annotations

import base64
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from urllib.parse import quote

from tests.support.secret_formats import (
    ALNUM,
    BASE64,
    BLOCKS,
    DIGITS,
    HEX,
    TOKENS,
    UPPER,
    URLSAFE,
    Make,
    basic,
    joined,
    of,
    one_of,
    password,
)


@dataclass(frozen=True)
class Planted:
    """A value of a kind, as `text[start:end]` of what carries it; no part of it may be left."""

    kind: str
    text: str
    start: int
    end: int


Carry = Callable[[Random, str], str]

CARRIERS: tuple[Carry, ...] = (
    lambda r, s: f"UPSTREAM_VALUE={s}",
    lambda r, s: f'export UPSTREAM="{s}"',
    lambda r, s: json.dumps({"id": r.randrange(10**6), "value": s, "ok": True}, ensure_ascii=False),
    lambda r, s: (
        f"2025-03-0{r.randrange(1, 9)}T10:2{r.randrange(10)}:11Z INFO client: sent {s} to upstream in 12ms"
    ),
    lambda r, s: f'client = Client("{s}", timeout=30)',
    lambda r, s: f"    return connect('{s}')",
    lambda r, s: f"https://api.acme.io/v1/items?k={s}&page=2" if " " not in s else f"items for {s}, page 2",
    lambda r, s: f"Please use {s}.",
    lambda r, s: f"The customer wrote ({s}), then left",
    lambda r, s: f"we had {s}, which was wrong",
    lambda r, s: f"value:{s}",
    lambda r, s: f"see `{s}` above",
    lambda r, s: r'{"body": "first line\n' + s + r'\nlast line"}',
    lambda r, s: f"  upstream: {s}",
    lambda r, s: f"17,{s},open",
    lambda r, s: f"<v>{s}</v>",
    lambda r, s: f"\t{s}",
    lambda r, s: f"it ends with {s}",
    lambda r, s: f"X-Upstream: {s}\r",
    lambda r, s: f"[{s}]",
    lambda r, s: f"- {s};",
    lambda r, s: s,
)


URL_SAFE_PASSWORD: Make = of(ALNUM + "-._~!*+", 10, 16, 24)
"""RFC 3986 leaves these to a userinfo; the rest is percent-encoded."""

Place = tuple[Make, tuple[str, ...]]
"""A value and the lines that give it away by its place in them, at `@@`."""

PLACED: Mapping[str, tuple[Place, ...]] = {
    # AWS, "Configuration and credential file settings", "AssumeRole".
    "aws_secret_access_key": (
        (
            of(BASE64, 40),
            (
                "aws_secret_access_key = @@",
                "AWS_SECRET_ACCESS_KEY=@@",
                'export AWS_SECRET_ACCESS_KEY="@@"',
                '{"Credentials": {"SecretAccessKey": "@@", "Expiration": "2025-01-01T00:00:00Z"}}',
                "<SecretAccessKey>@@</SecretAccessKey>",
                "aws configure set aws_secret_access_key @@",
                "aws_secret: '@@'",
                'boto3.client("s3", aws_secret_access_key="@@")',
            ),
        ),
    ),
    # Microsoft, "Configure Azure Storage connection strings": 64 bytes; Service Bus: 32.
    "azure_account_key": (
        (
            lambda r: base64.b64encode(r.randbytes(64)).decode(),
            (
                "DefaultEndpointsProtocol=https;AccountName=media;AccountKey=@@;EndpointSuffix=core.windows.net",
                'AZURE_CONN="AccountName=media;AccountKey=@@"',
                '{"accountKey": "@@"}',
            ),
        ),
        (
            lambda r: base64.b64encode(r.randbytes(32)).decode(),
            ("Endpoint=sb://bus.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=@@",),
        ),
    ),
    "azure_sas_signature": (
        (
            lambda r: quote(base64.b64encode(r.randbytes(32)).decode(), safe=""),
            (
                "https://media.blob.core.windows.net/c/b?sv=2022-11-02&se=2025-01-01T00%3A00%3A00Z&sp=r&sig=@@",
                'GET "https://media.blob.core.windows.net/c/b?sp=r&sv=2022-11-02&sr=c&sig=@@" 200',
            ),
        ),
    ),
    "discord_webhook": (
        (
            joined("discord.com/api/webhooks/", of(DIGITS[1:], 18, 19), "/", of(URLSAFE, 68)),
            ("curl https://@@ -d x", 'HOOK="https://@@"'),
        ),
    ),
    "slack_webhook": (
        (
            joined(
                "hooks.slack.com/services/T",
                of(UPPER + DIGITS, 8, 10),
                "/B",
                of(UPPER + DIGITS, 8, 10),
                "/",
                of(ALNUM, 24),
            ),
            ("https://@@", 'curl -X POST "https://@@"', '{"url": "https://@@"}'),
        ),
    ),
    "database_password": (
        (
            URL_SAFE_PASSWORD,
            (
                "DATABASE_URL=postgres://app:@@@db.internal:5432/app",
                "postgresql+asyncpg://app:@@@10.0.0.5/app?sslmode=require",
                "mongodb+srv://svc:@@@cluster0.ab1cd.mongodb.net/test",
                "redis://:@@@cache:6379/0",
                'engine = create_engine("mysql://root:@@@localhost/shop")',
                "amqp://guest:@@@rabbit:5672/%2f",
                "jdbc:mysql://app:@@@db:3306/shop",
            ),
        ),
    ),
    "url_password": (
        (
            URL_SAFE_PASSWORD,
            (
                "git clone https://deploy:@@@git.acme.io/team/app.git",
                "proxy=http://user:@@@proxy.acme.io:3128",
                'fetch("ftp://mirror:@@@files.acme.io/a.tar")',
                "pip install --index-url https://ci:@@@pypi.acme.io/simple app",
            ),
        ),
    ),
    # RFC 7617 and RFC 6750.
    "basic_authorization": (
        (
            basic,
            (
                "Authorization: Basic @@",
                '"Authorization": "Basic @@"',
                "curl -H 'authorization: basic @@' https://acme.io",
            ),
        ),
    ),
    "bearer_token": (
        (
            joined(of(ALNUM + "-._~+/", 31, 40, 64), of(ALNUM, 1)),
            (
                "Authorization: Bearer @@",
                '{"headers": {"Authorization": "Bearer @@"}}',
                "curl -H 'Authorization: Bearer @@' https://acme.io",
                "proxy-authorization: bearer @@",
            ),
        ),
    ),
    "password": (
        (
            password,
            (
                "DB_PASSWORD=@@",
                'password = "@@"',
                '{"user": "maria", "password": "@@"}',
                "spring.datasource.password: @@",
                "PGPASSWORD='@@' psql -h db",
                "mysql --password=@@ -u app",
                "login(user='maria', passwd='@@')",
                "<password>@@</password>",
                "Server=db;User Id=app;Password=@@;Encrypt=True",
                "my password is @@ since May",
                "  smtp_pass: @@",
                'config["admin_pwd"] = "@@"',
                "passphrase: @@",
            ),
        ),
    ),
    "credential": (
        (
            one_of(of(HEX, 32, 40, 64), of(ALNUM, 24, 32, 48), of(URLSAFE, 32, 43)),
            (
                "API_KEY=@@",
                'client_secret: "@@"',
                '{"access_token": "@@", "expires_in": 3600}',
                "https://api.acme.io/v1?api_key=@@&q=1",
                "X-Api-Key: @@",
                'SECRET_KEY = "@@"',
                "deploy --token @@ --yes",
                "auth_token=@@",
                "refreshToken: '@@',",
                "JWT_SECRET=@@",
                "signing-key=@@",
            ),
        ),
    ),
}

BLOCK_CARRIERS: tuple[Carry, ...] = (
    lambda r, s: s,
    lambda r, s: "cat id_rsa\n" + s,
    lambda r, s: "key: |\n" + textwrap.indent(s, "  "),
    lambda r, s: json.dumps({"type": "service_account", "private_key": s + "\n"}),
    lambda r, s: "\n".join(f"> {line}" for line in s.splitlines()),
    lambda r, s: f'KEY = """{s}"""',
)


def planted(seed: int, each: int) -> Iterator[Planted]:
    """`each` values of every kind, in carriers in turn; the same seed makes the same values."""
    r = Random(seed)
    for kind, make in TOKENS.items():
        for turn in range(each):
            secret = make(r)
            yield _at(kind, CARRIERS[turn % len(CARRIERS)](r, secret), secret)
    for kind, places in PLACED.items():
        for turn in range(each):
            make, lines = places[turn % len(places)]
            secret = make(r)
            yield _at(kind, r.choice(lines).replace("@@", secret, 1), secret)
    for kind, make in BLOCKS.items():
        for turn in range(each):
            text = BLOCK_CARRIERS[turn % len(BLOCK_CARRIERS)](r, make(r))
            yield Planted(kind, text, text.index("-----BEGIN"), text.rindex("-----") + 5)


def _at(kind: str, text: str, secret: str) -> Planted:
    start = text.rindex(secret)
    return Planted(kind, text, start, start + len(secret))
