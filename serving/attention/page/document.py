"""The page as one text: markup, style, program and data, each in its place and none able to leave it.

The page names its own program and style by hash (Content-Security-Policy), so nothing else in it can run, and it
may ask for nothing: no picture, font, frame or request. Data is base64 or JSON without a `<`.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Final

from serving.attention.capture import Capture
from serving.attention.page.packing import DECADES, Blob
from serving.attention.page.payload import capture_payload
from serving.errors import UsageError

_SCRIPTS: Final = ("data.js", "colours.js", "heatmap.js", "charts.js", "sections.js", "main.js")


def render_page(
    capture: Capture,
    other: Capture | None = None,
    *,
    names: tuple[str, str] = ("A", "B"),
    title: str = "Where the model looked",
) -> str:
    """The page of `capture`, or of it (A) and `other` (B); the same captures give the same text.

    Tokens are shown by `Capture.pieces`, by their ids where it has none. Raises: UsageError for captures of two
    different models.
    """
    if other is not None and other.model != capture.model:
        raise UsageError(
            f"Expected two captures of one model, got {capture.model.name} and {other.model.name}; "
            "capture both contexts with the same weights."
        )
    blob = Blob()
    sides = [capture] if other is None else [capture, other]
    header = {
        "decades": DECADES,
        "captures": [capture_payload(side, name, blob) for side, name in zip(sides, names, strict=False)],
    }
    style = _file("page.css")
    program = '"use strict";\n(() => {\n' + "\n".join(map(_file, _SCRIPTS)) + "\n})();\n"
    values = {
        "title": html.escape(title),
        "policy": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(program)}'",
        "style": style,
        "program": program,
        "header": json.dumps(header, ensure_ascii=True, allow_nan=False).replace("<", "\\u003c"),
        "blob": blob.text(),
    }
    # One pass: a value that holds a placeholder's name stays as it is.
    return re.sub(r"\{\{ (\w+) \}\}", lambda found: values[found[1]], _file("page.html"))


def write_page(path: Path, page: str) -> None:
    """Write the page as UTF-8."""
    path.write_text(page, encoding="utf-8", newline="\n")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _file(name: str) -> str:
    return (files("serving.attention.page") / name).read_text(encoding="utf-8")
