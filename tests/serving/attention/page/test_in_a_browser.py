"""The page as a reader has it: a real Chromium, real keys, a real pointer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from serving.attention import Capture
from serving.attention.measures import rank_heads
from serving.attention.page import render_page, write_page
from serving.attention.page.inline import show
from tests.serving.attention.page.test_document import HOSTILE, hostile
from tests.support.chromium import COMMAND, Tab, chromium
from tests.support.made_capture import PARTS, binned, made_capture, made_segments

pytestmark = pytest.mark.skipif(COMMAND is None, reason="no Chromium on this machine")

SCALE = 4
CAPTURE, MATRICES = made_capture(made_segments(SCALE))


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(tab: Tab, tmp_path: Path) -> Tab:
    return opened(tab, tmp_path, render_page(CAPTURE), "layer=1&head=2")


def opened(tab: Tab, folder: Path, text: str, fragment: str = "") -> Tab:
    file = folder / "page.html"
    write_page(file, text)
    tab.requests.clear()
    tab.problems.clear()
    tab.open(file, fragment)
    assert tab.evaluate("document.documentElement.dataset.failed") is None
    assert tab.requests == ["about:blank", file.as_uri()] or tab.requests == [file.as_uri()]
    assert tab.problems == []
    tab.evaluate("document.getElementById('map').focus()")
    return tab


def readout(tab: Tab) -> str:
    return str(tab.evaluate("document.getElementById('readout').innerText"))


def shown_value(tab: Tab) -> float:
    """The mass in the read-out, as a share."""
    text = str(tab.evaluate("document.getElementById('value').firstChild.textContent"))
    return float(text.removesuffix(" %")) / 100


def on_screen(tab: Tab, row: float, key: float) -> tuple[float, float]:
    """The place in the window of a token pair."""
    x, y = tab.evaluate(f"""(() => {{
        const box = document.getElementById('map').getBoundingClientRect();
        const {{ plot, view }} = page.heatmap;
        const at = (token, start) => ((token - start) * plot.size) / view.size;
        return [box.left + plot.x + at({key}, view.key), box.top + plot.y + at({row}, view.row)];
    }})()""")
    return float(x), float(y)


def test_rows_keep_their_mass_at_every_zoom_of_every_map(page: Tab) -> None:
    sums = page.evaluate("""page.captures.flatMap((capture) => capture.layers.flatMap((_, layer) =>
        [...capture.heads.keys(), "mean"].flatMap((head) => {
            const found = [];
            for (let map = capture.map(layer, head); map.bins > 1; map = page.halved(map))
                for (let row = 0; row < map.bins; row++)
                    found.push(map.sink[row] + map.cells.subarray(row * map.bins, (row + 1) * map.bins)
                        .reduce((sum, mass) => sum + mass, 0));
            return found;
        })))""")
    assert len(sums) > 200
    assert np.allclose(sums, 1, atol=1e-4)


def test_a_hover_shows_the_mass_and_the_words_of_the_cell(page: Tab) -> None:
    row, key = 133, 61
    page.point(*on_screen(page, row + 0.5, key + 0.5))
    width = 2 * -(-CAPTURE.tokens // 16)
    expected = binned(MATRICES[1:2, 2:3], width)[0, 0, row // width, key // width]
    assert shown_value(page) == pytest.approx(expected, rel=0.06)
    text = readout(page)
    assert " w132" in text
    assert "8 thinking" in text
    assert "of this row is on token 0" in text


def test_the_sink_stands_apart_and_exactly(page: Tab) -> None:
    page.point(*on_screen(page, 150.5, 3.5))
    width = 2 * -(-CAPTURE.tokens // 16)
    rows = slice(150 // width * width, (150 // width + 1) * width)
    sink = MATRICES[1, 2, rows, 0].mean()
    said = float(readout(page).split("% of this row is on token 0")[0].split()[-1]) / 100
    assert said == pytest.approx(sink, rel=0.01)
    first = binned(MATRICES[1:2, 2:3], width)[0, 0, 150 // width, 0]
    assert shown_value(page) == pytest.approx(first - sink, rel=0.06)


def test_keys_move_cursor_layer_and_head(page: Tab) -> None:
    before = page.evaluate("({...page.heatmap.cursor})")
    page.press("ArrowUp")
    page.press("ArrowLeft")
    after = page.evaluate("({...page.heatmap.cursor})")
    assert after["row"] < before["row"]
    assert after["key"] < before["key"]
    page.press("]")
    page.press("h")
    assert page.evaluate("[page.state.layer, page.state.head]") == [2, 3]
    page.press("[")
    page.press("H", shift=True)
    page.press("m")
    assert page.evaluate("[page.state.layer, page.state.head]") == [1, "mean"]
    page.press("x")
    assert "largest mean mass that a head gives" in readout(page)
    page.press("]")
    page.press("]")
    page.press("]")
    assert page.evaluate("page.state.layer") == 2, "there is no fourth layer"


def test_the_cursor_never_leaves_the_triangle(page: Tab) -> None:
    for _ in range(40):
        page.press("ArrowRight")
    for _ in range(40):
        page.press("ArrowUp")
    cursor = page.evaluate("({...page.heatmap.cursor})")
    assert cursor == {"row": 0, "key": 0}


def test_wheel_and_keys_zoom_to_a_place_and_back(page: Tab) -> None:
    x, y = on_screen(page, 120, 40)
    page.wheel(x, y, -120)
    page.wheel(x, y, -120)
    view = page.evaluate("({...page.heatmap.view})")
    assert view["size"] < CAPTURE.tokens * 0.7
    assert on_screen(page, 120, 40) == pytest.approx((x, y), abs=2), "the place under the pointer stays"
    page.press("ArrowUp", shift=True)
    assert page.evaluate("page.heatmap.view.row") < view["row"]
    page.press("0")
    assert page.evaluate("({...page.heatmap.view})") == {"row": 0, "key": 0, "size": CAPTURE.tokens}


def test_the_table_says_what_a_segment_gets_from_the_chosen_rows(page: Tab) -> None:
    cells = page.evaluate("""[...document.querySelectorAll('#mass tbody tr')]
        .map((row) => [...row.cells].map((cell) => cell.innerText))""")
    rows = list(CAPTURE.segments.positions("output#answer"))
    for place, segment in enumerate(CAPTURE.segments.segments):
        keys = list(CAPTURE.segments.positions(segment.id))
        mass = MATRICES[:, :, rows][..., keys].sum(-1).mean()
        name, tokens, shown, *_ = cells[place]
        assert segment.label in name
        assert int(tokens) == len(keys)
        assert float(shown.removesuffix(" %")) / 100 == pytest.approx(mass, rel=0.01, abs=2e-5)


def test_a_click_in_the_ranking_shows_that_heads_map(page: Tab) -> None:
    layer, head, _ = page.evaluate(
        "[...document.querySelector('#ranking tbody tr').cells].map((cell) => Number.parseFloat(cell.innerText))"
    )
    page.evaluate("document.querySelector('#ranking tbody tr').click()")
    assert page.evaluate("[page.state.layer, page.state.head]") == [layer, head]
    first, *_ = rank_heads(CAPTURE, ["output#thinking"], ["output#answer"])
    assert (first.layer, first.head) == (layer, head)


def test_two_contexts_are_shown_side_by_side_and_in_turn(tab: Tab, tmp_path: Path) -> None:
    segments = made_segments(SCALE, [part for part in PARTS if part[0] != "status-bar"])
    other, _ = made_capture(segments, seed=1)
    text = render_page(CAPTURE, other, names=("bar", "none"))
    opened(tab, tmp_path, text)
    row = "[...document.querySelectorAll('#beside-table tbody tr')].find((row) => row.innerText.includes('status bar'))"
    assert tab.evaluate(f"[...{row}.cells].slice(1, 6).map((cell) => cell.innerText)")[1::2] == ["–", "–"]
    assert tab.evaluate("document.getElementById('beside').hidden") is False
    tab.press("a")
    assert tab.evaluate("page.state.context") == 1
    assert "status bar" not in str(tab.evaluate("document.getElementById('legend').innerText"))


def test_hostile_text_does_nothing_and_is_shown_spelt_out(tab: Tab, tmp_path: Path) -> None:
    capture, _ = made_capture(made_segments(parts=[(HOSTILE[0], HOSTILE[1], *PARTS[0][2:]), *PARTS[1:]]))
    page = render_page(hostile(capture), title=HOSTILE[0], names=(HOSTILE[1], HOSTILE[2]))
    opened(tab, tmp_path, page, "head=0")
    for key in range(7):
        tab.point(*on_screen(tab, 6.5, key + 0.5))
        tab.press("ArrowUp")
    assert tab.evaluate("window.hit") is None
    assert tab.evaluate("document.title") == HOSTILE[0]
    assert tab.evaluate("document.querySelectorAll('img, iframe, object').length") == 0
    tab.evaluate("page.heatmap.cursor = { row: 2, key: 2 }; page.heatmap.draw()")
    tab.settle()
    assert "\\u202egnp.exe" in readout(tab)
    assert HOSTILE[1] in str(tab.evaluate("document.getElementById('legend').innerText"))


def test_the_page_follows_a_dark_scheme(page: Tab) -> None:
    pixel = "page.heatmap.image.canvas.getContext('2d').getImageData(0, 0, 1, 1).data[0]"
    look = f"[getComputedStyle(document.body).backgroundColor, {pixel}]"
    light = page.evaluate(look)
    page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.settle()
    dark = page.evaluate(look)
    page.send("Emulation.setEmulatedMedia", features=[])
    assert light[0] != dark[0]
    assert light[1] != dark[1]


def test_a_capture_without_maps_still_has_its_tables(tab: Tab, tmp_path: Path) -> None:
    from dataclasses import replace

    bare: Capture = replace(
        CAPTURE, heatmap=None, heatmap_mean=None, heatmap_max=None, received=None, entropy=None, baseline=None
    )
    opened(tab, tmp_path, render_page(bare))
    assert tab.evaluate("document.querySelectorAll('#mass tbody tr').length") == len(bare.segments.segments)
    assert "does not hold" in str(tab.evaluate("document.getElementById('position').innerText"))


def test_the_page_runs_in_a_notebooks_frame(tab: Tab, tmp_path: Path) -> None:
    frame = show(CAPTURE)._repr_html_()
    file = tmp_path / "notebook.html"
    file.write_text(
        f"<!doctype html><html data-ready='1'><body>{frame}</body></html>",
        encoding="utf-8",
    )
    tab.problems.clear()
    tab.open(file)
    tab.enter_frame()
    tab.wait_for("document.documentElement?.dataset.ready")
    assert str(tab.evaluate("document.getElementById('summary').innerText")).startswith("made-up")
    assert tab.problems == []
