"""The lint report as one page: no script, nothing from elsewhere, every text of the log inert."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from experiments.cli.lint import headline
from experiments.framework.pages import page_environment

if TYPE_CHECKING:
    from serving.explain.lint import LintReport


def render_page(report: LintReport) -> str:
    """Render the page; the same report gives the same text."""
    template = page_environment(Path(__file__).parent).get_template("lint.html.jinja")
    return template.render(report=report, headline=headline(report))
