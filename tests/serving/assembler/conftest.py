from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from serving.assembler import RequestContext

FIXTURES = Path(__file__).parents[2] / "fixtures" / "assembler.json"


@pytest.fixture(scope="session")
def worked() -> dict[str, Any]:
    """The worked examples, whose numbers must come out exactly."""
    loaded: dict[str, Any] = json.loads(FIXTURES.read_text(encoding="utf-8"))
    return loaded


@pytest.fixture
def context() -> RequestContext:
    return RequestContext(tenant="t1", actor="u1", now=datetime(2026, 10, 2, tzinfo=UTC))
