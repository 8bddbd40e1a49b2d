"""The one door to a page: every value of a template becomes text here, and Jinja escapes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from serving.text import visible

if TYPE_CHECKING:
    from jinja2 import Environment

TEXT_LIMIT: Final = 2_000
"""Characters of one value; what must be read whole is given with the filter `whole`."""


def page_environment(folder: Path = Path(__file__).parent) -> Environment:
    """Templates of a folder, with `shown` over every value and the filter `whole` for long texts."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["whole"] = whole
    environment.filters["percent"] = "{:.1%}".format
    return environment


def shown(value: object) -> object:
    """What a page prints: unknown is said, numbers are grouped, and no text is invisible or endless."""
    match value:
        case None:
            return "unknown"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}"
        case str() if not hasattr(value, "__html__"):
            return cut(str(value), TEXT_LIMIT)
        case _:
            return value


def cut(text: str, limit: int) -> str:
    """At most `limit` characters with nothing hidden in them; behind a cut stands how many there were."""
    shown = visible(text[:limit])
    return shown if len(text) <= limit else f"{shown}… ({len(text):,} characters)"


def whole(text: str) -> object:
    """All of a text, escaped, with what cannot be seen spelt out."""
    from markupsafe import escape

    return escape(visible(text))
