"""The live view of a block pool: how full it is, what came, what went, and which text that was."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from experiments.cli.untrusted import plain, untrusted
from serving.chat import ChatTokenizer
from serving.engine.live_mirror import Change
from serving.prefix import PoolBlock, PoolMirror

_KEPT_LINES = 18
_PREVIEW_CHARACTERS = 60


class Pool(NamedTuple):
    """What is known of the watched pool; None where the server did not tell."""

    model: str | None
    block_size: int | None
    num_blocks: int | None
    """The reserved one included."""
    note: str = ""


class WatchView:
    """Folds changes into totals and the latest lines."""

    def __init__(self, pool: Pool, tokenizer: ChatTokenizer | None) -> None:
        self._pool = pool
        self._tokenizer = tokenizer
        self._lines: deque[Text] = deque(maxlen=_KEPT_LINES)
        self._stored = self._evicted = self._cleared = self._missed = 0

    def take(self, change: Change) -> None:
        """Add one change to what is shown."""
        self._lines.extend(self.lines(change))
        self._stored += len(change.step.stored)
        self._evicted += len(change.step.removed)
        self._cleared += change.step.cleared
        self._missed += change.step.missed

    def lines(self, change: Change) -> list[Text]:
        """One change in lines: notices, the reset, what was evicted, what was stored."""
        clock = time.strftime("%H:%M:%S", time.localtime(change.at))
        lines = [Text.assemble((f"{clock} ", "dim"), (f"! {notice}", "yellow")) for notice in change.notices]
        if change.step.cleared:
            lines.append(
                Text.assemble((f"{clock} ", "dim"), (f"× reset: {change.step.cleared:,} blocks", "magenta"))
            )
        for sign, style, word, blocks in (
            ("−", "red", "evicted", change.step.removed),
            ("+", "green", "stored", change.step.stored),
        ):
            if blocks:
                what = f"{sign} {word} {_counted(blocks)}"
                line = Text.assemble((f"{clock} ", "dim"), (f"{what:<40}", style))
                lines.append(line.append_text(self._preview(blocks)))
        return lines

    def page(self, mirror: PoolMirror) -> RenderableType:
        """Everything as it stands now."""
        pool = self._pool
        usable = None if pool.num_blocks is None else pool.num_blocks - 1
        head = Table(box=None, show_header=False, pad_edge=False)
        head.add_column(style="dim")
        head.add_column()
        head.add_row(
            "model", plain(pool.model or f"unknown: {pool.note}" if pool.note else pool.model or "unknown")
        )
        filled = f"{mirror.blocks:,} of {usable:,}" if usable else f"{mirror.blocks:,}"
        tokens = f" = {mirror.blocks * pool.block_size:,} tokens" if pool.block_size else ""
        head.add_row("blocks that can serve hits", f"[bold]{filled}[/]{tokens}")
        if usable:
            head.add_row("", ProgressBar(total=usable, completed=mirror.blocks, width=60))
        totals = f"{self._stored:,} stored, {self._evicted:,} evicted, {self._cleared:,} reset"
        head.add_row("since watching", totals)
        state = "[green]complete[/]" if mirror.complete else "[bold red]incomplete[/]"
        head.add_row("this copy is", f"{state}, {self._missed:,} batches missed")
        return Group(head, Text(), *self._lines)

    def _preview(self, blocks: Sequence[PoolBlock]) -> Text:
        ids = blocks[0].token_ids
        if self._tokenizer is None or not ids:
            return Text()
        text = "".join(token.piece for token in self._tokenizer.show(ids[:40])).replace("\n", "↵")
        return untrusted(text[:_PREVIEW_CHARACTERS], style="dim")


def _counted(blocks: Sequence[PoolBlock]) -> str:
    number = f"{len(blocks):,} block{'s' if len(blocks) > 1 else ''}"
    places = [block.position for block in blocks if block.position is not None]
    if not places:
        return number
    low, high = min(places), max(places)
    return f"{number} (at {low:,})" if low == high else f"{number} (at {low:,} to {high:,})"
