from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell

from notebooks.blank import answers, blank_copies, without
from tests.support.tiny_weights import write_tiny_weights

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


class Lesson(NamedTuple):
    prints: str
    """What only a run up to its last exercise shows."""
    most_cells: int
    attaches: bool = False
    """Whether it uses a server at `CTXLAB_URL` where there is one: here the one that all live tests share. Without
    one, it starts its own."""
    stand_in: str = ""
    """The model whose name is replaced by a tiny one's folder: the checks of the lesson hold for any model."""


LESSONS = {
    "01_what_the_model_reads": Lesson("equal: True", most_cells=18),
    "02_tool_calls_react_loop": Lesson("A form is not a skill", most_cells=16),
    "03_prefix_cache": Lesson("(prompt tokens, computed)", most_cells=18, attaches=True),
    "04_chat_templates": Lesson("prove it, then grade it", most_cells=14),
    "05_attention": Lesson("the smallest p that 3 seeds can give", most_cells=16, stand_in="smollm2-135m"),
    "06_status_bar": Lesson("are the bar's and", most_cells=16),
    "07_budgets_gates_manifests": Lesson("another policy: historical", most_cells=16),
    "08_latency": Lesson("% of the time measured", most_cells=14, attaches=True),
}


def runs(path: Path) -> object:
    marks = [pytest.mark.live] if LESSONS[path.stem].attaches else []
    return pytest.param(path, id=path.stem, marks=marks)


def test_every_lesson_is_known_here() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(LESSONS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_is_short_and_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert len(notebook.cells) <= LESSONS[path.stem].most_cells
    assert notebook.cells[0].cell_type == "markdown"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_says_where_it_stands_in_the_course(path: Path) -> None:
    number = NOTEBOOKS.index(path) + 1
    first = nbformat.read(path, as_version=4).cells[0].source
    around = {at: NOTEBOOKS[at - 1].name for at in (number - 1, number + 1) if 1 <= at <= len(NOTEBOOKS)}
    assert path.name.startswith(f"{number:02}_")
    assert first.startswith(f"# {number} · ")
    assert f"Lesson {number} of {len(NOTEBOOKS)}" in first
    assert {name for name in links(first) if name.endswith(".ipynb")} == set(around.values())
    assert any(name.startswith("../") for name in links(first)), "no page that goes deeper"


@pytest.mark.parametrize("path", [*NOTEBOOKS, ROOT / "notebooks" / "README.md"], ids=lambda path: path.name)
def test_the_links_of_the_course_lead_somewhere(path: Path) -> None:
    targets = links(path.read_text(encoding="utf-8"))
    assert targets
    assert [name for name in targets if not (path.parent / name).is_file()] == []


def test_the_course_lists_its_lessons_in_order() -> None:
    listed = links((ROOT / "notebooks" / "README.md").read_text(encoding="utf-8"))
    assert [name for name in listed if name.endswith(".ipynb")] == [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_exercise_of_a_lesson_has_an_answer_that_can_be_taken_out(path: Path) -> None:
    sources = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    numbers = [re.findall(r"# Exercise (\d+)\. ", source) for source in sources]
    assert [int(one) for of_cell in numbers for one in of_cell] == list(range(1, sum(map(len, numbers)) + 1))
    for source, of_cell in zip(sources, numbers, strict=True):
        assert len(answers(source)) >= len(of_cell)


def test_blank_copies_are_the_course_without_its_answers(tmp_path: Path) -> None:
    blank_copies(tmp_path / "mine")
    for path in NOTEBOOKS:
        lesson, copy = (
            nbformat.read(at / path.name, as_version=4) for at in (path.parent, tmp_path / "mine")
        )
        for cell, blank in zip(lesson.cells, copy.cells, strict=True):
            found = answers(cell.source) if cell.cell_type == "code" else []
            assert blank.source.count("...") - cell.source.count("...") >= len(found)
            assert (blank == cell) is (found == [])
    assert (tmp_path / "mine" / "README.md").is_file()
    assert (tmp_path / "mine" / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_an_answer_is_taken_out_and_its_form_stays() -> None:
    source = "# Exercise 1.\nmine = {\n    'a': 1,\n}\n\ndef mine_too(n, m=2):\n    return n\n\nmine_3 = 3\nother = 4"
    for answer in reversed(answers(source)):
        source = without(source, answer)
    assert source == (
        "# Exercise 1.\nmine = {'a': ...}\n\ndef mine_too(n, m=2):\n    ...\n\nmine_3 = ...\nother = 4"
    )


@pytest.mark.parametrize("path", [runs(path) for path in NOTEBOOKS])
def test_a_lesson_runs_from_top_to_bottom(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    lesson = LESSONS[path.stem]
    if lesson.attaches:
        monkeypatch.setenv("CTXLAB_URL", request.getfixturevalue("live_server").base_url)
    names = {lesson.stand_in: str(write_tiny_weights(tmp_path / "tiny").path)} if lesson.stand_in else {}
    assert lesson.prints in printed(path, names)


def test_the_lesson_on_budgets_runs_where_no_model_is_on_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CTXLAB_CACHE", str(tmp_path))
    path = ROOT / "notebooks" / "07_budgets_gates_manifests.ipynb"
    shown = printed(path)
    assert "counted by fixed-counter" in shown
    assert LESSONS[path.stem].prints in shown


def links(text: str) -> list[str]:
    """What Markdown links in a text point to, in order."""
    return re.findall(r"\]\(([^)\s]+\.(?:ipynb|md))\)", text)


def printed(path: Path, names: Mapping[str, str] | None = None) -> str:
    """All that the lesson prints, run in its own folder as Jupyter runs it. `names` replaces strings.

    Fails where the check of an exercise refuses the answer, or is content without one.
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for name, other in (names or {}).items():
            cell.source = cell.source.replace(json.dumps(name), json.dumps(other))
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}})
    with client.setup_kernel():
        for place, cell in enumerate(notebook.cells):
            for answer in answers(cell.source) if cell.cell_type == "code" else ():
                with pytest.raises(CellExecutionError):
                    client.execute_cell(new_code_cell(without(cell.source, answer)), place)
            client.execute_cell(cell, place)
    outputs = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    return "".join(output.get("text", "") for output in outputs)
