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


@pytest.mark.parametrize("figure", [BARS, STACKS, POINTS], ids=["bars", "stacked", "points"])
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
