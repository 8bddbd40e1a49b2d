"""What tests share: one served model for everything marked `live`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
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

ROOT = Path(__file__).parents[1]

LIVE_MODEL = "qwen3-nano-shape"
"""Four layers and random weights: starts fast, and caches and renders as the real model does."""

LIVE_BLOCK_SIZE = 32


SANDBOXED = ("tests/experiments/agent/tools/", "tests/experiments/workloads/test_tool_prompts")
"""Files whose tests look for sandboxed processes on the whole machine, or start some."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that use the served model come first: they are the longest group, and the others fill the rest."""
    items.sort(key=lambda item: _group(item.nodeid) != "live")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """With several workers, tests that share something stay on one: the served model, the sandbox, a file's fixtures.

    By file, for the controller knows the tests by their ids alone (and pytest 9.2 no longer lets xdist's own groups
    write themselves into an id).
    """
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return Grouped(config, log)


def _group(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    if file.startswith(SANDBOXED):
        return "sandbox"
    return "live" if _uses_the_served_model(file) else file


@cache
def _uses_the_served_model(file: str) -> bool:
    return "pytest.mark.live" in (ROOT / file).read_text(encoding="utf-8")


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
