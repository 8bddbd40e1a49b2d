"""What can be found, and how a finding and a cleaned text look."""

from __future__ import annotations

from enum import StrEnum, auto
from typing import Final, NamedTuple, Protocol


class SecretKind(StrEnum):
    """Kinds of secrets and personal data; where two overlap, the one that stands first names the finding."""

    # Keys that come as a block of their own
    SSH_PRIVATE_KEY = auto()
    PGP_PRIVATE_KEY = auto()
    PRIVATE_KEY = auto()
    AGE_SECRET_KEY = auto()
    # Clouds and infrastructure
    AWS_ACCESS_KEY_ID = auto()
    AWS_SECRET_ACCESS_KEY = auto()
    AZURE_ACCOUNT_KEY = auto()
    AZURE_CLIENT_SECRET = auto()
    AZURE_SAS_SIGNATURE = auto()
    GOOGLE_API_KEY = auto()
    GOOGLE_ACCESS_TOKEN = auto()
    GOOGLE_CLIENT_SECRET = auto()
    DATABRICKS_TOKEN = auto()
    DIGITALOCEAN_TOKEN = auto()
    GRAFANA_TOKEN = auto()
    VAULT_TOKEN = auto()
    # Code and packages
    DOCKER_TOKEN = auto()
    GITHUB_FINE_GRAINED_TOKEN = auto()
    GITHUB_TOKEN = auto()
    GITLAB_TOKEN = auto()
    NPM_TOKEN = auto()
    PYPI_TOKEN = auto()
    RUBYGEMS_KEY = auto()
    # Models
    ANTHROPIC_KEY = auto()
    GROQ_KEY = auto()
    HUGGINGFACE_TOKEN = auto()
    OPENAI_KEY = auto()
    REPLICATE_TOKEN = auto()
    # Messages and mail
    DISCORD_TOKEN = auto()
    DISCORD_WEBHOOK = auto()
    MAILCHIMP_KEY = auto()
    MAILGUN_KEY = auto()
    SENDGRID_KEY = auto()
    SLACK_TOKEN = auto()
    SLACK_WEBHOOK = auto()
    TELEGRAM_BOT_TOKEN = auto()
    TWILIO_SID = auto()
    # Commerce and work
    LINEAR_KEY = auto()
    NOTION_TOKEN = auto()
    POSTMAN_KEY = auto()
    SHOPIFY_TOKEN = auto()
    SQUARE_TOKEN = auto()
    STRIPE_KEY = auto()
    STRIPE_WEBHOOK_SECRET = auto()
    # Credentials known by their place
    JWT = auto()
    DATABASE_PASSWORD = auto()
    URL_PASSWORD = auto()
    BASIC_AUTHORIZATION = auto()
    BEARER_TOKEN = auto()
    PASSWORD = auto()
    CREDENTIAL = auto()
    # Personal data
    IBAN = auto()
    PAYMENT_CARD = auto()
    US_SSN = auto()
    EMAIL = auto()
    PHONE = auto()


PERSONAL: Final = frozenset(
    {SecretKind.IBAN, SecretKind.PAYMENT_CARD, SecretKind.US_SSN, SecretKind.EMAIL, SecretKind.PHONE}
)
"""What says something about a person; everything else opens a door."""


class Finding(NamedTuple):
    """Where something stands in a text, as `text[start:end]`; never its value, so that it may be logged."""

    kind: SecretKind
    start: int
    end: int


class Redaction(NamedTuple):
    """A text that may be kept, and the kinds of what was taken out of it, sorted, without the values."""

    text: str
    removed: tuple[str, ...] = ()


class Redactor(Protocol):
    """Takes secrets and personal data out of a text; must give the same answer for the same text."""

    def redact(self, text: str) -> Redaction:
        """The text without what must not be kept; raises rather than let a doubtful text through."""
