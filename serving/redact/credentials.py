"""Credentials that are known by their place: in a URL, in a header, in a connection string."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from serving.redact.checks import classes_of, decoded, is_random
from serving.redact.kinds import Finding
from serving.redact.kinds import SecretKind as Kind
from serving.redact.rule import Rule, Source, pattern, words

_USERINFO: Final = re.compile(
    r"""://[^\s:@/"'`<>?#]{0,128}:(?P<password>[^\s/"'`<>?#]{1,256})@(?=[\w\[-])""", re.ASCII
)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*$", re.IGNORECASE)
_DATABASES: Final = words(
    "amqp amqps clickhouse cockroachdb couchdb db2 mariadb mongodb mssql mysql neo4j oracle postgres postgresql "
    "redis rediss redshift snowflake sqlserver"
)
_NO_PASSWORD: Final = re.compile(r"[$%{<].*|\W*|[xX*.]+", re.ASCII)
"""A variable, a template or a mask."""


def _userinfo(source: Source) -> Iterator[Finding]:
    """The password between `scheme://user:` and `@host` (RFC 3986, 3.2.1); user and host stay readable."""
    for match in _USERINFO.finditer(source.text):
        start, end = match.span("password")
        if _NO_PASSWORD.fullmatch(match["password"]):
            continue
        scheme = _SCHEME.search(source.text, max(0, match.start() - 32), match.start())
        name = "" if scheme is None else scheme[0].lower().split("+", 1)[0].rsplit(":", 1)[-1]
        yield Finding(Kind.DATABASE_PASSWORD if name in _DATABASES else Kind.URL_PASSWORD, start, end)


def _is_user_and_password(value: str) -> bool:
    pair = decoded(value)
    return pair is not None and b":" in pair and pair.isascii() and pair.decode("ascii").isprintable()


def _is_aws_secret(value: str) -> bool:
    return is_random(value) and len(classes_of(value)) >= 3


def _is_account_key(value: str) -> bool:
    key = decoded(value)
    return key is not None and len(key) in {32, 64}


_AWS_VALUE: Final = r"[^\w\n]{1,8}(?P<value>[a-z0-9/+]{40})(?![a-z0-9/+=])"
_BINDING: Final = r"""\\?["']?[ ]{0,2}[:=][ ]{0,2}\\?["']?"""

CREDENTIALS: Final = (
    Rule(frozenset({Kind.URL_PASSWORD, Kind.DATABASE_PASSWORD}), _userinfo),
    pattern(
        Kind.AWS_SECRET_ACCESS_KEY,
        rf"secret[_-]?access[_-]?key{_AWS_VALUE}",
        check=_is_aws_secret,
        any_case=True,
    ),
    pattern(
        Kind.AWS_SECRET_ACCESS_KEY,
        rf"aws[_-]?secret(?:[_-]?key)?{_AWS_VALUE}",
        check=_is_aws_secret,
        any_case=True,
    ),
    pattern(
        Kind.AZURE_ACCOUNT_KEY,
        r"accountkey[^\w\n]{1,6}(?P<value>[a-z0-9+/]{86}==)",
        check=_is_account_key,
        any_case=True,
    ),
    pattern(
        Kind.AZURE_ACCOUNT_KEY,
        r"shared(?:access)?key[^\w\n]{1,6}(?P<value>[a-z0-9+/]{43}=)",
        check=_is_account_key,
        any_case=True,
    ),
    pattern(Kind.BEARER_TOKEN, r"bearer[ ]{1,4}(?P<value>[a-z0-9._~+/-]{16,}+={0,2})", any_case=True),
    pattern(
        Kind.BEARER_TOKEN,
        rf"authorization{_BINDING}(?:token|apikey|api-key|bot|key)[ ](?P<value>[a-z0-9._~+/=-]{{16,}}+)",
        any_case=True,
    ),
    pattern(
        Kind.BASIC_AUTHORIZATION,
        r"basic[ ]{1,4}(?P<value>[a-z0-9+/]{8,}+={0,2})",
        check=_is_user_and_password,
        any_case=True,
    ),
)
