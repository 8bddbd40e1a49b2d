"""What tests share: one served model for everything marked `live`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from serving.engine import KVEventsEndpoint

# A run started in the background inherits SIGINT as ignored, and every process that a test starts would too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A limit of seconds is a limit on the machine: what is slow here is not wrong.
settings.register_profile("ctxlab", deadline=None)
settings.load_profile("ctxlab")

LIVE_MODEL = "qwen3-nano-shape"
"""Four layers and random weights: starts fast, and caches and renders as the real model does."""

LIVE_BLOCK_SIZE = 32


SANDBOXED = ("tests/experiments/agent/tools/", "tests/experiments/workloads/test_tool_prompts")
"""Files whose tests look for sandboxed processes on the whole machine, or start some."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers, tests that share something stay on one: the served model, the sandbox, a file's fixtures.

    The served model's tests come first: they are the longest group, and the others fill the rest.
    """
    if not config.pluginmanager.hasplugin("xdist") or not config.getoption("numprocesses", None):
        return
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=lambda item: _group(item) != "live")


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("live"):
        return "live"
    file = item.nodeid.partition("::")[0]
    return "sandbox" if file.startswith(SANDBOXED) else file


@dataclass(frozen=True)
class LiveServer:
    """The served model that all live tests share."""

    base_url: str
    model: str
    folder: Path
    block_size: int
    num_blocks: int
    """The reserved one included."""
    kv_events: KVEventsEndpoint


@pytest.fixture(scope="session")
def live_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A real vLLM server on a free port, started at first use and ended with the session."""
    from serving.launch import LaunchOptions, launch, plan_launch
    from serving.probe import read_server_facts

    options = LaunchOptions(
        model=LIVE_MODEL,
        port=0,
        block_size=LIVE_BLOCK_SIZE,
        max_model_len=8192,
        kv_cache_bytes=1 << 29,
        kv_events=True,
    )
    plan = plan_launch(options)
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with launch(plan, log_path=log) as engine:
        facts = read_server_facts(engine.base_url, plan.folder.name)
        assert facts.num_blocks is not None and plan.config.kv_events is not None
        yield LiveServer(
            engine.base_url,
            plan.folder.name,
            plan.folder.path,
            LIVE_BLOCK_SIZE,
            facts.num_blocks,
            plan.config.kv_events,
        )
