"""Tables of results on a terminal or in a text file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table as Shown

from experiments.cli.untrusted import plain

if TYPE_CHECKING:
    from experiments.framework import Table


def show_table(table: Table, console: Console) -> None:
    """The title, the rows, and a blank line."""
    console.print(f"[bold]{plain(table.title)}[/]")  # rich would fold a title to the width of its table
    shown = Shown(box=None, header_style="bold")
    for place, column in enumerate(table.columns):
        shown.add_column(plain(column), justify="left" if place == 0 else "right", overflow="fold")
    for row in table.rows:
        cells = zip(table.columns, row, strict=True)
        shown.add_row(*(plain(cell_text(column, cell)) for column, cell in cells))
    console.print(shown)
    console.print()


def cell_text(column: str, cell: bool | int | float | str | None) -> str:
    """A cell in words: shares as percent, unknown as a dash."""
    match cell:
        case None:
            return "–"
        case float() if "share" in column:
            return f"{cell:.1%}"
        case float():
            return f"{cell:,.2f}" if abs(cell) < 100 else f"{cell:,.0f}"
        case str():
            return repr(cell)[1:-1]
        case _:
            return f"{cell:,}"
