"""How many examples the assembler's invariants are tried on: 10,000 in `make test-full`, 100 in `make test`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FULL = os.environ.get("CTXLAB_FULL") == "1"
"""Set by `make test-full`."""

_EXAMPLES = int(os.environ.get("CTXLAB_EXAMPLES", "10000" if FULL else "100"))
"""Mutation testing runs the same properties thousands of times and sets a smaller number."""

INVARIANT = settings(
    max_examples=_EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""For a property that the specification asks to hold on at least 10,000 examples."""
