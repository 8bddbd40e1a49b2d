"""The lint report as one page: no script, nothing from elsewhere, every text of the log inert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.lint import headline
from experiments.framework.plain import visible

if TYPE_CHECKING:
    from serving.explain.lint import LintReport

_LONGEST_TEXT = 2_000


def render_page(report: LintReport) -> str:
    """Render the page; the same report gives the same text."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = "{:.1%}".format
    return environment.get_template("lint.html.jinja").render(report=report, headline=headline(report))


def _shown(value: object) -> object:
    """What the page prints for a value: unknown is said, numbers are grouped, texts cannot hide or move."""
    match value:
        case None:
            return "unknown"
        case int() if not isinstance(value, bool):
            return f"{value:,}"
        case float():
            return f"{value:,.4g}"
        case str():
            return type(value)(visible(value, limit=_LONGEST_TEXT)) if type(value) is str else value
        case _:
            return value
