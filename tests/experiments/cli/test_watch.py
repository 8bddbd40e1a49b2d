from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from experiments.cli.watch_view import Pool, WatchView
from serving.client import Client, CompletionRequest
from serving.engine import KVEventsEndpoint
from serving.engine.live_mirror import Change, Notice
from serving.prefix import AllBlocksCleared, BlocksRemoved, BlocksStored, PoolMirror
from tests.conftest import LiveServer
from tests.support.kv_publisher import CLEARED, Publisher, removed, stored
from tests.support.stub import running_stub

WATCH = [sys.executable, "-m", "experiments.cli.main", "watch"]


def watch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WATCH, *arguments], capture_output=True, text=True, check=False, timeout=120, env=dict(os.environ)
    )


@pytest.mark.parametrize(
    ("persona", "words"),
    [
        ("events-off", "KV events are not on"),
        ("events-elsewhere", "/no/such/place, and nobody listens there"),
        ("vllm", "does not tell whether KV events are on"),
    ],
)
def test_a_server_whose_events_cannot_be_had_gets_one_sentence(persona: str, words: str) -> None:
    with running_stub(persona) as stub:
        done = watch(stub.base_url, "--seconds", "0")
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ") and words in line
    assert persona == "events-elsewhere" or "ctxlab serve --kv-events" in line


def test_events_come_as_json_lines_and_as_text(tmp_path: Path) -> None:
    endpoint = KVEventsEndpoint(live=f"ipc://{tmp_path}/e", replay=f"ipc://{tmp_path}/r")
    given = ("http://127.0.0.1:9", "--endpoint", endpoint.live, "--replay-endpoint", str(endpoint.replay))
    with Publisher(endpoint) as publisher:
        publisher.publish(stored(1, 2, token_ids=(7, 7, 8, 8)))
        publisher.publish(removed(2), stored(3, parent=1, token_ids=(9, 9)))
        publisher.publish(CLEARED)
        lines = [json.loads(line) for line in watch(*given, "--json", "--seconds", "1").stdout.splitlines()]
        text = watch(*given, "--seconds", "1").stdout
    assert [line["blocks"] for line in lines] == [2, 2, 0]
    assert lines[1]["removed"] == [{"key": f"{2:016x}", "position": 1, "tokens": 2}]
    assert lines[2]["cleared"] == 2 and lines[2]["complete"] is True
    assert lines[0]["notices"] == [Notice.CAUGHT_UP]
    for words in ("stored 2 blocks (at 0 to 1)", "evicted 1 block (at 1)", "reset: 2 blocks"):
        assert words in text


def test_the_page_tells_how_full_the_pool_is_and_when_it_is_not_to_be_trusted() -> None:
    mirror = PoolMirror()
    view = WatchView(Pool("[red]m\x1b[2J", 32, 101), None)

    def page() -> str:
        console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
        with console.capture() as captured:
            console.print(view.page(mirror))
        return captured.get()

    view.take(Change(0.0, mirror.apply(0, [BlocksStored(keys=(1, 2))]), ()))
    assert "2 of 100" in page() and "64 tokens" in page() and "complete, 0 batches missed" in page()
    assert "[red]m\\u001b[2J" in page()
    view.take(Change(0.0, mirror.apply(4, [BlocksRemoved(keys=(1,))]), (Notice.LOST,)))
    assert "incomplete, 3 batches missed" in page() and "evicted 1 block" in page() and Notice.LOST in page()
    view.take(Change(0.0, mirror.apply(5, [AllBlocksCleared()]), (Notice.TRUE_AGAIN,)))
    assert "0 of 100" in page() and "2 stored, 1 evicted, 1 reset" in page()


@pytest.mark.live
def test_a_really_served_model_is_watched_from_its_url_alone(live_server: LiveServer) -> None:
    ids = tuple(range(5000, 5000 + 2 * live_server.block_size))
    with Client(live_server.base_url) as client:
        client.complete(
            CompletionRequest(model=live_server.model, prompt=ids, max_tokens=1, cache_salt="watch")
        )
    done = watch(live_server.base_url, "--json", "--seconds", "2")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    first = lines[0]["sequence"]
    assert [line["sequence"] for line in lines] == list(range(first, first + len(lines)))
    assert all(line["complete"] == (first == 0) for line in lines)
