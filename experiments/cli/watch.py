"""`ctxlab watch`: a server's KV blocks as they are stored and evicted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.cli.console import ERR, OUT, print_json
from experiments.cli.model_files import files_here
from experiments.cli.options import api_key
from experiments.cli.signals import ending_politely
from experiments.cli.untrusted import plain

if TYPE_CHECKING:
    from pydantic import JsonValue

    from experiments.cli.watch_view import Pool
    from serving.chat import ChatTokenizer
    from serving.engine import KVEventsEndpoint
    from serving.engine.live_mirror import Change, LiveMirror
    from serving.prefix import PoolBlock

_TICK_S = 0.25


def watch(
    url: Annotated[
        str, typer.Argument(metavar="[URL]", help="A server on this machine.")
    ] = "http://127.0.0.1:8000",
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="Where KV events come from, if the server does not tell.")
    ] = None,
    replay: Annotated[
        str | None, typer.Option("--replay-endpoint", help="Where missed ones can be had again.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.0, help="End after so long; without, on Ctrl-C.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each engine step.")] = False,
) -> None:
    """Watch a server's block pool live: what is stored, what is evicted, and which text that was.

    Follows the engine's KV events and keeps a copy of its pool. Events that were lost are noticed and
    fetched again where the engine keeps them; else the view says that it is incomplete. The server must
    tell its events: `ctxlab serve --kv-events`.

    Examples:

      ctxlab watch

      ctxlab watch http://127.0.0.1:8001 --json --seconds 10
    """
    from serving.engine.live_mirror import LiveMirror
    from serving.engine.subscription import KVEventSubscription

    with ending_politely():
        source = _source(url, endpoint, replay)
        pool = _pool(url)
        tokenizer = _tokenizer(pool.model)
        if not as_json:
            ERR.print(f"[dim]KV events from {plain(source.live)} – Ctrl-C ends it[/]")
        end = None if seconds is None else time.monotonic() + seconds
        with KVEventSubscription(source) as subscription:
            mirror = LiveMirror(subscription)
            if as_json:
                _print_lines(mirror, end)
            else:
                _show(mirror, end, pool, tokenizer)


def _source(url: str, endpoint: str | None, replay: str | None) -> KVEventsEndpoint:
    from serving.engine import KVEventsEndpoint
    from serving.probe import find_kv_events

    if endpoint is not None:
        return KVEventsEndpoint(live=endpoint, replay=replay)
    return find_kv_events(url, api_key())


def _pool(url: str) -> Pool:
    """What the server tells of its pool; unknown where it answers nothing (events may outlive it)."""
    from pydantic import SecretStr

    from experiments.cli.watch_view import Pool
    from serving.engine import attach
    from serving.errors import LabError
    from serving.probe import read_server_facts
    from serving.text import server_root

    key = api_key()
    try:
        root = server_root(url)
        names = attach(root, api_key=SecretStr(key) if key else None).model_names
        facts = read_server_facts(root, names[0] if names else "", key)
    except LabError as error:
        return Pool(None, None, None, note=str(error))
    return Pool(names[0] if names else None, facts.block_size, facts.num_blocks)


def _tokenizer(model: str | None) -> ChatTokenizer | None:
    """What spells the texts of blocks; None where the served model's files are not here: they stay numbers."""
    from serving.chat import ChatTokenizer

    folder = None if model is None else files_here(model)
    return None if folder is None else ChatTokenizer(folder.path)


def _print_lines(mirror: LiveMirror, end: float | None) -> None:
    while end is None or time.monotonic() < end:
        for change in mirror.advance(_TICK_S):
            print_json(as_line(change, complete=mirror.mirror.complete), indent=False)


def as_line(change: Change, *, complete: bool) -> dict[str, JsonValue]:
    """One engine step for scripts."""
    return {
        "at": change.at,
        "sequence": change.step.sequence,
        "stored": [_block(block) for block in change.step.stored],
        "removed": [_block(block) for block in change.step.removed],
        "cleared": change.step.cleared,
        "blocks": change.step.copies,
        "missed": change.step.missed,
        "complete": complete,
        "notices": list(change.notices),
    }


def _block(block: PoolBlock) -> dict[str, JsonValue]:
    key = block.key.hex() if isinstance(block.key, bytes) else f"{block.key:016x}"
    return {"key": key, "position": block.position, "tokens": len(block.token_ids)}


def _show(mirror: LiveMirror, end: float | None, pool: Pool, tokenizer: ChatTokenizer | None) -> None:
    from rich.live import Live

    from experiments.cli.watch_view import WatchView

    view = WatchView(pool, tokenizer)
    if not OUT.is_terminal:
        while end is None or time.monotonic() < end:
            for change in mirror.advance(_TICK_S):
                for line in view.lines(change):
                    OUT.print(line, soft_wrap=True)
        return
    with Live(view.page(mirror.mirror), console=OUT, auto_refresh=False) as live:
        while end is None or time.monotonic() < end:
            for change in mirror.advance(_TICK_S):
                view.take(change)
            live.update(view.page(mirror.mirror), refresh=True)
