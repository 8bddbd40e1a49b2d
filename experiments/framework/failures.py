"""How a trial can end without a result, and what the runner does about each way."""

from __future__ import annotations

from collections.abc import Iterable

from serving.client import ErrorKind, Exchange, ExchangeError
from serving.errors import InequalityError, LabError

__all__ = [
    "INFRASTRUCTURE",
    "InequalityError",
    "InfrastructureError",
    "StoppedError",
    "failed_by_machinery",
]


class InfrastructureError(LabError):
    """The machinery failed (the server died, a request timed out): retried, counted apart, never scored."""


class StoppedError(LabError):
    """A person stopped the run; what is finished is on disk and the sentence says how to go on."""

    exit_code = 130


INFRASTRUCTURE = (InfrastructureError, ConnectionError, TimeoutError)
"""What a trial may raise for the machinery's sake; anything else stops the run."""


def failed_by_machinery(exchanges: Iterable[Exchange]) -> ExchangeError | None:
    """Find the first call that failed for the machinery's sake.

    A call that the caller cancelled is none, and neither is one that the server refused with its reason (4xx
    but for 408 and 429): a prompt that is too long is a finding about the arm.
    """
    for exchange in exchanges:
        if exchange.error is not None and _is_machinery(exchange.error):
            return exchange.error
    return None


def _is_machinery(error: ExchangeError) -> bool:
    if error.kind is ErrorKind.CANCELLED:
        return False
    refused = error.status is not None and 400 <= error.status < 500
    return not refused or error.status in {408, 429}
