"""How many examples the assembler's invariants are tried on: 10,000 in `make test-full`, fewer in `make test`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FULL = os.environ.get("CTXLAB_FULL") == "1"
"""Set by `make test-full`."""

INVARIANT = settings(
    max_examples=10_000 if FULL else 150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""For a property that the specification asks to hold on at least 10,000 examples."""
