from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from pydantic import ValidationError

from experiments.framework.figures import (
    COLOURS,
    AnyFigure,
    Bar,
    BarFigure,
    ScatterFigure,
    Stack,
    StackedFigure,
    draw,
)
from experiments.framework.plots import Band, GridFigure, Line, LineFigure

BARS = BarFigure(
    name="shares",
    title="Cached share by arm",
    axis="cached / prompt tokens",
    bars=(
        Bar(label="append-only", value=0.93, low=0.91, high=0.95),
        Bar(label="clock at the head", value=0.0),
        Bar(label="not run", value=None),
    ),
)
STACKS = StackedFigure(
    name="causes",
    title="Uncached tokens by cause",
    axis="tokens",
    parts=tuple(f"cause {n}" for n in range(10)),
    stacks=(
        Stack(label="a", values=tuple(float(n) for n in range(10))),
        Stack(label="b", values=(1.0,) * 10),
    ),
)
POINTS = ScatterFigure(
    name="predicted",
    title="Predicted and measured",
    axis="measured, seconds",
    other_axis="predicted, seconds",
    points=((0.5, 0.6), (12.0, 8.0)),
)
LINES = LineFigure(
    name="by-depth",
    title="Entropy by depth",
    axis="layer",
    value_axis="nats",
    places=(0, 1, 2),
    lines=(
        Line(label="one", values=(1.0, None, 2.0), low=(0.5, None, 1.5), high=(1.5, None, 2.5)),
        Line(label="two", values=(2.0, 2.0, 2.0)),
    ),
    even=1.0,
)
GRID = GridFigure(
    name="map",
    title="Layer 3, mean over heads",
    axis="keys",
    row_axis="rows",
    value_axis="share of a row",
    columns=("0", "1"),
    rows=("0", "1"),
    values=((1.0, None), (0.25, 0.0)),
    bands=(
        Band(start=0, end=1, label="system", colour="#0072B2"),
        Band(start=1, end=2, label="user", colour="#009E73"),
    ),
)


@pytest.mark.parametrize(
    "figure", [BARS, STACKS, POINTS, LINES, GRID], ids=["bars", "stacked", "points", "lines", "grid"]
)
def test_a_figure_is_written_as_png_svg_and_data_and_twice_the_same(
    tmp_path: Path, figure: AnyFigure
) -> None:
    first, second = draw(figure, tmp_path / "a"), draw(figure, tmp_path / "b")
    assert sorted(file.suffix for file in first.files) == [".csv", ".json", ".png", ".svg"]
    for one, other in zip(first.files, second.files, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.suffix
    assert first.files[0].read_bytes().startswith(b"\x89PNG")
    assert not re.search(rb"20\d\d-\d\d-\d\d", first.svg)
    assert (
        type(figure).model_validate(json.loads((tmp_path / "a" / f"{figure.name}.json").read_text()))
        == figure
    )


def test_the_csv_holds_the_numbers_and_leaves_the_unknown_empty(tmp_path: Path) -> None:
    draw(BARS, tmp_path)
    rows = list(csv.reader((tmp_path / "shares.csv").open()))
    assert rows[1:] == [
        ["append-only", "0.93", "0.91", "0.95"],
        ["clock at the head", "0.0", "", ""],
        ["not run", "", "", ""],
    ]


def test_the_svg_shows_labels_as_text_and_names_the_unknown(tmp_path: Path) -> None:
    text = "".join(ElementTree.fromstring(draw(BARS, tmp_path).svg).itertext())
    for said in ("append-only", "not run", "unknown", "cached / prompt tokens"):
        assert said in text


@pytest.mark.filterwarnings("ignore:Glyph")  # the PNG has boxes there, the SVG keeps the text
@pytest.mark.parametrize(
    "label",
    [
        "$\\frac{$",
        "<script>alert(1)</script>",
        "\u202egnp\x00",
        "_hidden",
        "x" * 100_000,
        "模型",
        "a\ud800",
        "",
    ],
)
def test_a_hostile_label_is_drawn_as_text(tmp_path: Path, label: str) -> None:
    bars = BARS.model_copy(update={"bars": (Bar(label=label, value=1.0),), "title": label})
    stacks = STACKS.model_copy(update={"stacks": (Stack(label=label, values=(1.0,) * 10),)})
    stacks = stacks.model_copy(update={"parts": (label, *STACKS.parts[1:])})
    for figure in (bars, stacks):
        root = ElementTree.fromstring(draw(figure, tmp_path).svg)
        assert not [tag for tag in root.iter() if "script" in str(tag.tag).lower()]


def test_parts_beyond_the_palette_differ_by_hatch(tmp_path: Path) -> None:
    svg = draw(STACKS, tmp_path).svg.decode()
    assert len(STACKS.parts) > len(COLOURS)
    assert "<pattern" in svg


def test_figures_that_lie_are_refused() -> None:
    with pytest.raises(ValidationError, match="low must not exceed high"):
        Bar(label="a", value=1.0, low=2.0, high=1.0)
    with pytest.raises(ValidationError, match="1 values for 10 parts"):
        STACKS.model_validate({**STACKS.model_dump(), "stacks": [{"label": "a", "values": [1.0]}]})
    with pytest.raises(ValidationError):
        Stack(label="a", values=(-1.0,))
    with pytest.raises(ValidationError):
        BARS.model_validate({**BARS.model_dump(), "name": "../../etc/passwd"})


def test_the_csv_of_lines_has_one_row_a_place_and_the_bounds_beside_their_line(tmp_path: Path) -> None:
    draw(LINES, tmp_path)
    rows = list(csv.reader((tmp_path / "by-depth.csv").open()))
    assert rows == [
        ["layer", "one", "one, low", "one, high", "two"],
        ["0.0", "1.0", "0.5", "1.5", "2.0"],
        ["1.0", "", "", "", "2.0"],
        ["2.0", "2.0", "1.5", "2.5", "2.0"],
    ]


def test_lines_of_another_length_than_their_places_are_refused() -> None:
    with pytest.raises(ValidationError, match="2 values for 3 places"):
        LineFigure.model_validate({**LINES.model_dump(), "lines": ({"label": "x", "values": (1, 2)},)})
    with pytest.raises(ValidationError, match="places must rise"):
        LineFigure.model_validate({**LINES.model_dump(), "places": (0, 2, 1)})


def test_a_grid_with_a_missing_cell_is_refused() -> None:
    with pytest.raises(ValidationError, match="2 rows of 2"):
        GridFigure.model_validate({**GRID.model_dump(), "values": ((1.0, 0.0),)})


def test_a_marked_stack_says_what_its_mark_means_and_keeps_the_number(tmp_path: Path) -> None:
    marked = Stack(label="a", values=(3.0, 4.0), mark=5.0)
    with pytest.raises(ValidationError, match="does not say what it means"):
        StackedFigure(name="m", title="t", axis="x", parts=("p", "q"), stacks=(marked,))
    figure = StackedFigure(
        name="m",
        title="t",
        axis="x",
        parts=("p", "q"),
        stacks=(marked, Stack(label="b", values=(1.0, 2.0))),
        mark="ceiling",
    )
    svg = draw(figure, tmp_path).svg.decode()
    assert "ceiling" in svg
    rows = list(csv.reader((tmp_path / "m.csv").open(encoding="utf-8")))
    assert rows == [["label", "p", "q", "ceiling"], ["a", "3.0", "4.0", "5.0"], ["b", "1.0", "2.0", ""]]
