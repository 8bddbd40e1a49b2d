from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from experiments.framework import Cross, CrossFigure
from experiments.framework.figures import draw, table_of


def figure(*crosses: Cross) -> CrossFigure:
    return CrossFigure(name="both", title="Both", axis="lost", other_axis="right", crosses=crosses)


def test_a_point_with_whiskers_both_ways_is_drawn_with_its_numbers_behind_it(tmp_path: Path) -> None:
    data = figure(
        Cross(
            label="text", across=8.0, across_low=7.0, across_high=9.0, up=-50.0, up_low=-70.0, up_high=-30.0
        ),
        Cross(label="few prompts", across=0.0, up=0.0),
    )
    drawn = draw(data, tmp_path)
    assert b"few prompts" in drawn.svg
    assert draw(data, tmp_path).svg == drawn.svg
    columns, rows = table_of(data)
    assert columns[0] == "label" and columns[1] == "lost" and columns[4] == "right"
    assert rows == (
        ("text", 8.0, 7.0, 9.0, -50.0, -70.0, -30.0),
        ("few prompts", 0.0, None, None, 0.0, None, None),
    )


def test_bounds_in_the_wrong_order_and_a_figure_without_points_are_refused() -> None:
    with pytest.raises(ValidationError, match="low must not exceed high"):
        Cross(label="x", across=0, across_low=2, across_high=1, up=0)
    with pytest.raises(ValidationError):
        figure()
