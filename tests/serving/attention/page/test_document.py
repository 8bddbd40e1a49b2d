from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import replace

import pytest

from serving.attention import Capture
from serving.attention.page import render_page, show
from serving.errors import UsageError
from tests.support.made_capture import PARTS, made_capture, made_segments

CAPTURE, _ = made_capture()

HOSTILE = (
    "</script><script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 2'>",
    "\u202egnp.exe",
    "\ud83d",
    "\x1b[2J\x00",
    "{{ program }}",
    "y" * 100_000,
)


def hostile(capture: Capture) -> Capture:
    """The capture with hostile texts for its first tokens."""
    assert capture.pieces is not None
    return replace(capture, pieces=(*HOSTILE, *capture.pieces[len(HOSTILE) :]))


def test_the_same_capture_gives_the_same_page() -> None:
    assert render_page(CAPTURE) == render_page(CAPTURE)


def test_the_page_allows_its_own_program_and_style_by_hash_and_nothing_else() -> None:
    page = render_page(CAPTURE)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    allowed = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert allowed.pop("default-src") == "'none'"
    for rule, tag in (("style-src", "style"), ("script-src", "script")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert allowed.pop(rule) == f"'sha256-{digest}'"
    assert allowed == {}


def test_the_page_names_nothing_outside_itself() -> None:
    page = render_page(CAPTURE)
    without_names = page.replace("http://www.w3.org/2000/svg", "")  # a namespace, never fetched
    assert not re.findall(r"(?:https?:)?//[a-z0-9]+\.|\bsrc=|\bhref=|@import|url\(", without_names)


def test_hostile_text_stays_inside_its_data() -> None:
    page = render_page(hostile(CAPTURE), title=HOSTILE[0], names=(HOSTILE[1], "B"))
    assert len(re.findall(r"<script", page)) == 3
    assert len(re.findall(r"</script>", page)) == 3
    (header,) = re.findall(r'id="header">(.*?)</script>', page, re.DOTALL)
    words = json.loads(header)["captures"][0]["text"]["words"]
    assert words[2] == "\\u202egnp.exe"
    assert words[3] == "\\ud83d"
    assert words[4] == "\\u001b[2J\\u0000"
    assert words[5] == "{{ program }}"
    assert words[6] == "y" * 60 + "… (100,000 characters)"
    page.encode("utf-8")


def test_a_page_of_two_contexts_holds_both() -> None:
    segments = made_segments(parts=PARTS[:-1])
    other, _ = made_capture(segments)
    page = render_page(CAPTURE, other, names=("bar", "none"))
    (header,) = re.findall(r'id="header">(.*?)</script>', page, re.DOTALL)
    assert [side["name"] for side in json.loads(header)["captures"]] == ["bar", "none"]


def test_a_capture_without_texts_shows_ids() -> None:
    page = render_page(replace(CAPTURE, pieces=None))
    (header,) = re.findall(r'id="header">(.*?)</script>', page, re.DOTALL)
    assert json.loads(header)["captures"][0]["text"]["words"][:2] == ["[0]", "[1]"]


def test_two_models_are_not_put_on_one_page() -> None:
    other = replace(CAPTURE, model=CAPTURE.model.model_copy(update={"name": "another"}))
    with pytest.raises(UsageError, match="one model"):
        render_page(CAPTURE, other)


def test_a_notebook_gets_the_page_in_a_frame_that_cannot_reach_it() -> None:
    inline = show(CAPTURE, height=500)
    frame = inline._repr_html_()
    assert 'sandbox="allow-scripts"' in frame
    assert 'height="500"' in frame
    (document,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert html.unescape(document) == render_page(CAPTURE)
