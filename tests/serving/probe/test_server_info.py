from __future__ import annotations

import pytest
from pydantic import JsonValue

from serving.engine import KVEventsEndpoint
from serving.errors import LabError
from serving.prefix import Unsupported, unsupported
from serving.probe import read_server_info
from serving.probe.server_info import parse_config
from tests.support.stub import running_stub

# What vLLM 0.32 tells of a Qwen3 on a CPU, cut to the parts that are read.
CONFIG: dict[str, JsonValue] = {
    "cache_config": {
        "block_size": 32,
        "enable_prefix_caching": True,
        "prefix_caching_hash_algo": "sha256",
        "mamba_block_size": None,
        "sliding_window": None,
        "num_gpu_blocks": 2048,
    },
    "parallel_config": {"decode_context_parallel_size": 1},
    "scheduler_config": {"async_scheduling": False},
    "speculative_config": None,
    "kv_transfer_config": None,
    "kv_events_config": {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": "ipc:///run/e",
        "replay_endpoint": "ipc:///run/r",
        "topic": "",
    },
}


def with_(part: str, **values: JsonValue) -> dict[str, JsonValue]:
    before = CONFIG[part]
    return {**CONFIG, part: {**(before if isinstance(before, dict) else {}), **values}}


def test_a_plain_engine_can_be_predicted_and_tells_where_its_events_are() -> None:
    info = parse_config(CONFIG)
    assert unsupported(info.traits) == ()
    assert info.asynchronous is False
    assert info.kv_events == KVEventsEndpoint(live="ipc:///run/e", replay="ipc:///run/r")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (with_("cache_config", enable_prefix_caching=False), Unsupported.CACHING_OFF),
        (with_("cache_config", sliding_window=4096), Unsupported.SLIDING_WINDOW),
        (with_("cache_config", mamba_block_size=528), Unsupported.STATE_SPACE),
        (with_("speculative_config", num_speculative_tokens=3), Unsupported.SPECULATIVE_DECODING),
        (with_("kv_transfer_config", kv_connector="LMCache"), Unsupported.KV_CONNECTOR),
        (with_("parallel_config", decode_context_parallel_size=2), Unsupported.CONTEXT_PARALLEL),
    ],
)
def test_an_engine_with_another_rule_is_known_by_its_configuration(
    config: dict[str, JsonValue], reason: Unsupported
) -> None:
    assert unsupported(parse_config(config).traits) == (reason,)


@pytest.mark.parametrize(
    "off", [{"enable_kv_cache_events": False}, {"publisher": "null"}, {"endpoint": None}]
)
def test_events_that_are_off_are_no_endpoint(off: dict[str, JsonValue]) -> None:
    assert parse_config(with_("kv_events_config", **off)).kv_events is None


def test_a_server_without_the_page_tells_nothing_and_none_there_is_an_error() -> None:
    for persona in ("vllm", "garbler"):
        with running_stub(persona) as stub:
            assert read_server_info(stub.base_url) is None
    with running_stub("events-off") as stub:
        assert read_server_info(stub.base_url) is not None
    with pytest.raises(LabError, match="is it running"):
        read_server_info("http://127.0.0.1:9")
