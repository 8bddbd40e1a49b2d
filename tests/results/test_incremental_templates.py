"""The table of published templates: what is committed is what the code does now."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.incremental_templates import RESULTS, markdown, published_templates, table
from serving.assembler import RewriteKind, WholeReason

SAMPLE = ("qwen3", "qwen2_5", "gemma4_v2", "llama3_1", "nemotron_3_nano")
"""One that strips reasoning, two that only go on, one without parallel calls, one that cuts thoughts short."""


@pytest.fixture(scope="module")
def committed() -> dict[str, dict[str, Any]]:
    rows = json.loads((RESULTS / "templates.json").read_text(encoding="utf-8"))
    return {row["template"]: row for row in rows}


@pytest.fixture(scope="module")
def templates() -> dict[str, str]:
    return published_templates()


def without_counts(row: dict[str, Any]) -> dict[str, Any]:
    """A template that reads the clock has other tokens on another day."""
    day = {"tokens", "reused"} if row["reads_clock"] else set()
    return {key: value for key, value in row.items() if key not in day}


def test_every_published_template_that_renders_tools_has_its_row(
    committed: dict[str, Any], templates: dict[str, str]
) -> None:
    assert list(committed) == list(templates)
    assert len(committed) > 40


def test_incremental_equals_anew_for_all_of_them_with_and_without_cuts(committed: dict[str, Any]) -> None:
    assert all(row["equal"] and row["equal_without_tokens"] for row in committed.values())


def test_a_fallback_is_recorded_with_its_reason(committed: dict[str, Any]) -> None:
    for row in committed.values():
        assert row["whole_without_tokens"] == {WholeReason.NO_CUT: row["calls"] - 1}
        assert row["whole"].keys() <= set(WholeReason)
        assert row["rewritten"].keys() <= set(RewriteKind)


def test_the_page_shows_the_rows(templates: dict[str, str], committed: dict[str, Any]) -> None:
    page = (RESULTS / "templates.md").read_text(encoding="utf-8")
    assert page.count("| yes |") == len(committed)
    assert all(f"| {name} " in page for name in committed)


def test_the_committed_rows_are_those_that_the_code_gives(
    committed: dict[str, Any], templates: dict[str, str]
) -> None:
    for row in table({name: templates[name] for name in SAMPLE}):
        assert without_counts(row.as_json()) == without_counts(committed[row.template])


@pytest.mark.full
def test_all_committed_rows_are_those_that_the_code_gives(
    committed: dict[str, Any], templates: dict[str, str]
) -> None:
    rows = table(templates)
    assert [without_counts(row.as_json()) for row in rows] == [*map(without_counts, committed.values())]
    if not any(row.reads_clock for row in rows):
        assert markdown(rows) == (RESULTS / "templates.md").read_text(encoding="utf-8")
