"""Every fault against a really served model: it reads the ids that were rendered and reuses what was predicted."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from experiments.faults import FAULTS, build_faults
from serving.assembler import ContextPolicy
from serving.call import Caller, DecodeOptions, MeasuredCall
from serving.client import Client
from serving.models import ensure
from tests.conftest import LIVE_MODEL, LiveServer
from tests.support.sabotage import CALLS, fault_context, request

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def client(live_server: LiveServer) -> Iterator[Client]:
    with Client(live_server.base_url) as made:
        yield made


@pytest.mark.parametrize("name", FAULTS)
def test_a_server_reads_what_a_fault_sends_and_reuses_what_was_predicted(
    name: str, client: Client, live_server: LiveServer
) -> None:
    caller = Caller(client, ensure(LIVE_MODEL), block_size=live_server.block_size)
    salt = uuid4().hex
    for call in range(CALLS):
        made = caller.call(
            request(call, window=8192),
            ContextPolicy(),
            DecodeOptions(max_tokens=1),
            salt=salt,
            faults=build_faults([name], fault_context(call)),
        )
        assert isinstance(made, MeasuredCall)
        assert made.exchange.error is None
        assert made.ids_agree
        assert made.prediction_agrees
