"""What an optional item is worth: one formula over terms that stay visible in the manifest."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from serving.assembler.record import Record

UTILITY_DECIMALS: Final = 9
"""Utilities are rounded here so that -0.02 is -0.02 and ties are ties on every platform."""


class Terms(Record):
    """The five terms of an item's utility, each in [0, 1]; given by whoever retrieved or wrote the item."""

    relevance: float = Field(default=1.0, ge=0, le=1)
    authority: float = Field(default=1.0, ge=0, le=1)
    freshness: float = Field(default=1.0, ge=0, le=1)
    redundancy: float = Field(default=0.0, ge=0, le=1)
    injection_risk: float = Field(default=0.0, ge=0, le=1)


class UtilityWeights(Record):
    """How hard a policy charges the two penalties; the product of the other three terms has weight 1."""

    redundancy: float = Field(default=1.0, ge=0)
    injection_risk: float = Field(default=1.0, ge=0)


def utility(terms: Terms, weights: UtilityWeights) -> float:
    """relevance × authority × freshness − redundancy − injection risk, with the penalties weighted."""
    worth = terms.relevance * terms.authority * terms.freshness
    penalty = weights.redundancy * terms.redundancy + weights.injection_risk * terms.injection_risk
    # `+ 0.0` turns a negative zero into zero, which would otherwise be a second spelling of the same number.
    return round(worth - penalty, UTILITY_DECIMALS) + 0.0
