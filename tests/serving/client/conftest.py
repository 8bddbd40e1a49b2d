from __future__ import annotations

from collections.abc import Iterator

import pytest

from serving.client import Client
from tests.support.stub import Stub, running_stub


@pytest.fixture(scope="session")
def stub() -> Iterator[Stub]:
    with running_stub() as running:
        yield running


@pytest.fixture(scope="session")
def client(stub: Stub) -> Iterator[Client]:
    with Client(stub.base_url, idle_timeout_s=2.0) as made:
        yield made
