"""Copies of the lessons without the answers to their exercises: python notebooks/blank.py FOLDER

In a lesson an answer is what `mine`, or a name that begins with `mine_`, is given in a cell with an exercise.
"""

from __future__ import annotations

import argparse
import ast
import shutil
from pathlib import Path

import nbformat

LESSONS = Path(__file__).parent

Answer = ast.Assign | ast.FunctionDef


def answers(source: str) -> list[Answer]:
    """The answers in a cell, in order; none where the cell has no exercise."""
    if "# Exercise" not in source:
        return []
    nodes = (node for node in ast.parse(source).body if isinstance(node, Answer))
    return [node for node in nodes if _name_of(node).partition("_")[0] == "mine"]


def without(source: str, answer: Answer) -> str:
    """The cell with `...` in place of an answer: under each of its keys where it has some, in the body of a function."""
    if isinstance(answer, ast.FunctionDef):
        blank = f"def {answer.name}({ast.unparse(answer.args)}):\n    ..."
    elif isinstance(answer.value, ast.Dict):
        keys = ", ".join(f"{ast.unparse(key)}: ..." for key in answer.value.keys if key)
        blank = f"{_name_of(answer)} = {{{keys}}}"
    else:
        blank = f"{_name_of(answer)} = ..."
    lines = source.splitlines()
    return "\n".join([*lines[: answer.lineno - 1], blank, *lines[answer.end_lineno :]])


def blank_copies(folder: Path) -> None:
    """Write all lessons into a new folder beside `notebooks/`, where their links lead to the same pages."""
    folder.mkdir()  # never over copies that somebody has worked on
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")  # a reader's own, for git and the linter
    shutil.copy(LESSONS / "README.md", folder)
    for path in sorted(LESSONS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            for answer in reversed(answers(cell.source) if cell.cell_type == "code" else []):
                cell.source = without(cell.source, answer)
        nbformat.write(notebook, folder / path.name)


def _name_of(node: Answer) -> str:
    return node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node.targets[0])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write copies of the lessons without their answers.")
    parser.add_argument("folder", help="A new one, made beside notebooks/.")
    blank_copies(LESSONS.parent / parser.parse_args().folder)
