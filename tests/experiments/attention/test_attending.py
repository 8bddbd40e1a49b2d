from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.attention.attending import Look, attend, check_folder, parse_places, parse_rows
from experiments.attention.figures import capture_figures
from experiments.attention.sources import MessagesFile, PromptText
from experiments.attention.tables import capture_tables, compare_table
from experiments.framework import GridFigure
from serving.attention import load_capture
from serving.errors import UsageError
from serving.progress import Silent
from tests.support.made_capture import PARTS, made_capture, made_segments
from tests.support.tiny_weights import write_tiny_weights

MESSAGES = [
    {"role": "system", "content": "You answer."},
    {"role": "user", "content": "What is a prefix?"},
    {"role": "assistant", "content": "A beginning."},
    {"role": "user", "content": "And a suffix?"},
]


@given(places=st.sets(st.integers(0, 500), min_size=1))
def test_numbers_and_ranges_name_what_they_say(places: set[int]) -> None:
    text = ",".join(map(str, sorted(places, reverse=True)))
    assert parse_places(text, "--layers") == tuple(sorted(places))


def test_ranges_hold_both_ends() -> None:
    assert parse_places("7, 0-2", "--layers") == (0, 1, 2, 7)
    assert parse_places(" ", "--layers") is None
    assert parse_rows("answer") == "answer"
    assert parse_rows("3-4") == (3, 4)


@pytest.mark.parametrize("text", ["x", "1-", "3-1", "-1", "1,,2", "0-99999999999"])
def test_what_is_no_number_or_range_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--rows"):
        parse_rows(text)


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    check_folder(tmp_path / "new")
    (tmp_path / "attention.html").touch()
    (tmp_path / "capture.attention.npz").touch()
    check_folder(tmp_path)
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"thesis\.tex"):
        check_folder(tmp_path)
    with pytest.raises(UsageError, match="found a file"):
        check_folder(tmp_path / "thesis.tex")


def test_two_contexts_become_page_files_figures_and_tables(tmp_path: Path) -> None:
    folder = write_tiny_weights(tmp_path / "tiny")
    sources = [MessagesFile("long", MESSAGES, []), MessagesFile("short", MESSAGES[:2], [])]
    found = attend(sources, folder, Look(generate=3, shuffles=2), tmp_path / "out", Silent())
    out = tmp_path / "out"
    first, second = (load_capture(out / f"capture-{side}.attention.npz") for side in "ab")
    assert first.segments.tokens > second.segments.tokens
    assert first.segments.prompt_tokens == first.segments.tokens - 3
    page = (out / "attention.html").read_text(encoding="utf-8")
    assert '"name": "long"' in page
    assert (out / "figures" / "a-map-mean.svg").is_file()
    assert json.loads((out / "tables.json").read_text()) == [t.model_dump(mode="json") for t in found.tables]
    assert found.tables[-1].title.startswith("long and short")
    check_folder(out)


def test_rows_of_the_answer_are_those_that_decide_its_tokens(tmp_path: Path) -> None:
    folder = write_tiny_weights(tmp_path / "tiny")
    look = Look(generate=4, rows="answer", shuffles=0, layers=(1,), heads=(0, 3))
    found = attend([PromptText("A", "one two three")], folder, look, tmp_path / "out", Silent())
    (capture,) = found.captures
    prompt = capture.segments.prompt_tokens
    assert list(capture.row_starts) == list(range(prompt - 1, prompt + 4))
    assert (capture.layers, capture.heads) == ((1,), (0, 3))


def test_nothing_is_written_for_a_context_that_is_refused(tmp_path: Path) -> None:
    folder = write_tiny_weights(tmp_path / "tiny")
    with pytest.raises(UsageError, match="4,096 tokens"):
        attend([PromptText("A", "word " * 5000)], folder, Look(), tmp_path / "out", Silent())
    assert not (tmp_path / "out").exists()


def test_the_tables_of_masses_sum_to_one() -> None:
    capture, _ = made_capture()
    mass, *_ = capture_tables(capture)
    assert sum(float(row[3] or 0) for row in mass.rows) == pytest.approx(1, abs=1e-4)
    assert mass.title == "Attention mass from answer"


def test_the_comparison_starts_from_a_segment_that_both_have() -> None:
    first, _ = made_capture(made_segments(parts=PARTS[:-1]))
    second, _ = made_capture()
    assert compare_table(first, second, ("A", "B")).title == "A and B: attention mass from thinking"


def test_the_map_figure_keeps_rows_without_the_sink() -> None:
    capture, _ = made_capture(made_segments(3))
    for figure in capture_figures(capture):
        if isinstance(figure, GridFigure) and figure.bands:
            assert all(value is None for row, cells in enumerate(figure.values) for value in cells[row + 1 :])
            assert all(sum(value or 0 for value in cells) < 1.001 for cells in figure.values)
            assert {band.label for band in figure.bands} >= {"thinking", "status bar"}
