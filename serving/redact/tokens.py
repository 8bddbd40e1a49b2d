"""Tokens whose vendors gave them a form of their own, one line a form.

Lengths are lower bounds where a vendor says that they may grow, and a run is taken to its end: what follows a
secret without a break may be more of it. Sources: the vendors' own pages on their tokens and the partner
patterns of secret scanning; where a vendor publishes only the prefix, the length is that of the tokens that it
gives out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from serving.redact.checks import decoded, is_jose_header, is_random
from serving.redact.kinds import Finding
from serving.redact.kinds import SecretKind as Kind
from serving.redact.rule import Rule, Source, always, fresh, pattern, token

_ALNUM: Final = "[A-Za-z0-9]"
_URLSAFE: Final = r"[A-Za-z0-9_-]"
_HEX: Final = "[0-9a-f]"

_TELEGRAM: Final = re.compile(rf":(?<=\d{{8}}:)(?P<secret>{_URLSAFE}{{35}})(?!{_URLSAFE})")
_BOT_NUMBER: Final = re.compile(rf"(?:{fresh('')}|(?<=/bot))(?P<number>\d{{8,10}})$")


def _varied(value: str) -> bool:
    # Hex digits, or capitals with a few digits, change class too seldom to be judged as random; where the rest of
    # the form says enough, it is only asked that a value does not repeat itself as a placeholder does.
    return len(set(value)) >= 6


def _ends_random(value: str) -> bool:
    # Numbers of a team and a bot stand before the random part.
    return is_random(value.rsplit("-", 1)[-1])


def _is_sas_signature(value: str) -> bool:
    signature = decoded(unquote(value))
    return signature is not None and len(signature) == 32


def _is_discord_token(value: str) -> bool:
    user = decoded(value.split(".", 1)[0])
    return user is not None and user.isdigit()


def _telegram_tokens(source: Source) -> Iterator[Finding]:
    """`<number of the bot>:<35 characters>`; in a URL the word `bot` stands before the number."""
    for match in _TELEGRAM.finditer(source.text):
        number = _BOT_NUMBER.search(source.text, max(0, match.start() - 14), match.start())
        if number is not None and is_random(match["secret"]):
            yield Finding(Kind.TELEGRAM_BOT_TOKEN, number.start("number"), match.end())


def _has_jose_header(value: str) -> bool:
    return is_jose_header(value.split(".", 1)[0])


CLOUD: Final = (
    token(Kind.AWS_ACCESS_KEY_ID, "A[KS]IA", "[A-Z2-7]{16}", check=_varied, word=True),
    pattern(
        Kind.AZURE_CLIENT_SECRET,
        rf"Q~{fresh('[A-Za-z0-9_.~-][A-Za-z0-9_.~-]{2}[0-9]Q~', after='A-Za-z0-9_.~-')}"
        r"(?<=\dQ~)[A-Za-z0-9_.~-]{31,34}(?![A-Za-z0-9_~-])",
        before=4,
    ),
    pattern(
        Kind.AZURE_SAS_SIGNATURE,
        r"sig=(?<=[?&;]sig=)(?P<value>(?:[A-Za-z0-9+/]|%2[BbFf]){43}(?:=|%3[Dd]))",
        check=_is_sas_signature,
    ),
    token(Kind.GOOGLE_API_KEY, "AIza", rf"{_URLSAFE}{{35}}(?!-|_)", word=True),
    token(Kind.GOOGLE_ACCESS_TOKEN, r"ya29\.", rf"{_URLSAFE}{{60,}}+", word=True),
    token(Kind.GOOGLE_CLIENT_SECRET, "GOCSPX-", rf"{_URLSAFE}{{28,}}+"),
    token(Kind.DATABRICKS_TOKEN, "dapi", rf"{_HEX}{{32}}(?:-\d)?", check=_varied, word=True),
    token(Kind.DIGITALOCEAN_TOKEN, "do[opr]_v1_", rf"{_HEX}{{64}}", check=_varied),
    token(Kind.GRAFANA_TOKEN, "glsa_", rf"{_ALNUM}{{32}}_{_HEX}{{8}}"),
    token(Kind.VAULT_TOKEN, r"hv[bsr]\.", rf"{_URLSAFE}{{24,}}+", word=True),
    token(Kind.AGE_SECRET_KEY, "AGE-SECRET-KEY-1", "[AC-HJ-NP-Z02-9]{58}"),
)

CODE: Final = (
    token(Kind.DOCKER_TOKEN, "dckr_pat_", rf"{_URLSAFE}{{27,}}+"),
    token(Kind.GITHUB_TOKEN, "gh[pousr]_", rf"{_ALNUM}{{36,}}+"),
    token(Kind.GITHUB_FINE_GRAINED_TOKEN, "github_pat_", rf"{_ALNUM}{{22}}_{_ALNUM}{{59,}}+"),
    token(
        Kind.GITLAB_TOKEN,
        "gl(?:pat|dt-|rt-|ft-)",
        rf"-?{_URLSAFE}{{20,}}+(?:\.[0-9a-z]{{2}}\.[0-9a-z]{{9}})?",
    ),
    token(Kind.NPM_TOKEN, "npm_", rf"{_ALNUM}{{36,}}+"),
    # The macaroon of a PyPI token begins with its version and the name of the index: always the same bytes.
    token(Kind.PYPI_TOKEN, "pypi-AgE", rf"{_URLSAFE}{{50,}}+"),
    token(Kind.RUBYGEMS_KEY, "rubygems_", rf"{_HEX}{{48}}", check=_varied),
)

MODELS: Final = (
    token(Kind.ANTHROPIC_KEY, "sk-ant-", rf"{_URLSAFE}{{40,}}+"),
    token(Kind.GROQ_KEY, "gsk_", rf"{_ALNUM}{{48,}}+"),
    token(Kind.HUGGINGFACE_TOKEN, "hf_", rf"{_ALNUM}{{34,}}+", word=True),
    token(Kind.OPENAI_KEY, "sk-", rf"(?:proj|svcacct|admin|None)-{_URLSAFE}{{40,}}+", word=True),
    # The first form of OpenAI, and of the many servers that took over its interface.
    token(Kind.OPENAI_KEY, "sk-", rf"(?:or-v1-)?{_ALNUM}{{32,}}+", word=True),
    token(Kind.REPLICATE_TOKEN, "r8_", rf"{_ALNUM}{{37}}", word=True),
)

MESSAGES: Final = (
    pattern(
        Kind.DISCORD_TOKEN,
        rf"[MNO]{fresh('.', after='A-Za-z0-9_-')}{_URLSAFE}{{22,27}}"
        rf"\.{_URLSAFE}{{6}}\.{_URLSAFE}{{27,38}}(?!{_URLSAFE})",
        check=_is_discord_token,
    ),
    pattern(
        Kind.DISCORD_WEBHOOK,
        rf"discord(?:app)?\.com/api/(?:v\d{{1,2}}/)?webhooks/\d{{17,20}}/{_URLSAFE}{{60,}}+",
        check=always,
    ),
    pattern(
        Kind.MAILCHIMP_KEY,
        rf"-us(?<={_HEX}{{32}}-us){fresh('.{32}-us')}\d{{1,2}}(?!\w)",
        check=_varied,
        before=32,
    ),
    pattern(
        Kind.MAILGUN_KEY,
        rf"-{_HEX}{{8}}-{_HEX}{{8}}(?<={_HEX}{{32}}-.{{8}}-.{{8}}){fresh('.{50}')}(?![\w-])",
        check=_varied,
        before=32,
    ),
    token(Kind.MAILGUN_KEY, "key-", rf"{_HEX}{{32}}", check=_varied, word=True),
    token(Kind.SENDGRID_KEY, r"SG\.", rf"{_URLSAFE}{{22}}\.{_URLSAFE}{{43}}", word=True),
    token(Kind.SLACK_TOKEN, "xox[abcdeoprs]-", "[A-Za-z0-9%-]{20,}+", check=_ends_random),
    token(Kind.SLACK_TOKEN, r"xoxe\.xox[bp]-", rf"{_URLSAFE}{{20,}}+"),
    token(Kind.SLACK_TOKEN, "xapp-", r"\d-[A-Z0-9]{9,12}-\d{9,14}-[0-9a-f]{64}"),
    pattern(
        Kind.SLACK_WEBHOOK,
        r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Z0-9]{8,14}/[A-Z0-9]{8,20}/[A-Za-z0-9/]{18,}+",
    ),
    Rule(frozenset({Kind.TELEGRAM_BOT_TOKEN}), _telegram_tokens),
    token(Kind.TWILIO_SID, "AC", rf"{_HEX}{{32}}", check=_varied, word=True),
    token(Kind.TWILIO_SID, "SK", rf"{_HEX}{{32}}", check=_varied, word=True),
)

WORK: Final = (
    token(Kind.LINEAR_KEY, "lin_api_", rf"{_ALNUM}{{40,}}+"),
    token(Kind.NOTION_TOKEN, "ntn_", rf"{_ALNUM}{{40,}}+"),
    token(Kind.NOTION_TOKEN, "secret_", rf"{_ALNUM}{{43}}", word=True),
    token(Kind.POSTMAN_KEY, "PMAK-", rf"{_HEX}{{24}}-{_HEX}{{34}}"),
    token(Kind.SHOPIFY_TOKEN, "shp(?:at|ca|pa|ss)_", "[0-9a-fA-F]{32}", check=_varied),
    token(Kind.SQUARE_TOKEN, "EAAA", rf"{_URLSAFE}{{60}}(?![_+/=-])", word=True),
    token(Kind.SQUARE_TOKEN, "sq0(?:atp|csp)-", rf"{_URLSAFE}{{22,}}+"),
    token(Kind.STRIPE_KEY, "sk_(?:live|test)_", rf"{_ALNUM}{{16,}}+"),
    token(Kind.STRIPE_KEY, "rk_(?:live|test)_", rf"{_ALNUM}{{16,}}+"),
    token(Kind.STRIPE_WEBHOOK_SECRET, "whsec_", r"[A-Za-z0-9+/]{32,}+={0,2}"),
)

JWT: Final = (
    # A run is tried once, from its beginning: hence no letter, no digit, no `-`, no `_` before it.
    pattern(
        Kind.JWT,
        rf"eyJ{fresh('eyJ', after='A-Za-z0-9_-')}"
        rf"{_URLSAFE}{{8,}}+\.{_URLSAFE}{{2,}}+\.{_URLSAFE}*+(?:\.{_URLSAFE}++\.{_URLSAFE}++)?",
        check=_has_jose_header,
    ),
)

TOKENS: Final[tuple[Rule, ...]] = (*CLOUD, *CODE, *MODELS, *MESSAGES, *WORK, *JWT)
