"""The committed survey of templates, and what the README says of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "results" / "template-survey"


def one_line(path: Path) -> str:
    return re.sub(r"[\s>]+", " ", path.read_text(encoding="utf-8"))


def test_the_readme_quotes_the_conclusion_and_credits_the_collection() -> None:
    conclusion = json.loads((FOLDER / "table.json").read_text(encoding="utf-8"))["conclusion"]
    readme = one_line(ROOT / "README.md")
    assert conclusion in readme
    assert conclusion in one_line(FOLDER / "table.md")
    assert "results/template-survey/table.md" in readme
    assert "github.com/huggingface/trl" in readme


def test_every_template_is_in_the_table_once_and_every_row_has_every_probe() -> None:
    templates = json.loads((FOLDER / "table.json").read_text(encoding="utf-8"))["templates"]
    names = [template["name"] for template in templates]
    assert len(names) == len(set(names)) == 72
    rows = [line for line in (FOLDER / "table.md").read_text(encoding="utf-8").splitlines() if "| " in line]
    for template in templates:
        if not template["name"].endswith("_training"):
            [row] = [line for line in rows if line.startswith(f"| {template['name']} |")]
            assert row.count("|") == len(template["probes"]) + 3
