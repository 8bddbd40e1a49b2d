from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TEMPLATES = ROOT / "tests" / "serving" / "chat" / "templates"


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.cli.main", "template", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=dict(os.environ),
    )


def test_a_file_is_surveyed_as_a_page_and_as_json() -> None:
    path = str(TEMPLATES / "qwen3.jinja")
    page = template(path).stdout
    row = next(line for line in page.splitlines() if line.strip().startswith("thinking off "))
    assert "part" in row and "generation prompt" in row
    assert "empty think block vanishes" in page
    found = json.loads(template(path, "--json").stdout)
    assert found["unit"] == "characters"
    assert found["probes"]["thinking off"]["kept"] == "part"


@pytest.mark.parametrize(
    "arguments", [[], ["--trl", "x.jinja"], ["x.jinja", "--into", "y"], ["/no/such.jinja"]]
)
def test_a_wrong_request_gets_one_sentence(arguments: list[str]) -> None:
    done = template(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1


def test_a_templates_own_words_cannot_command_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "loud.jinja"
    path.write_text("{{ raise_exception('\x1b[2J') }}{{ messages }}", encoding="utf-8")
    assert "\x1b" not in template(str(path)).stdout


@pytest.mark.full
def test_the_committed_table_is_what_the_command_writes(tmp_path: Path) -> None:
    done = template("--trl", "--into", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for name in ("table.md", "table.json"):
        committed = ROOT / "results" / "template-survey" / name
        assert (tmp_path / name).read_text(encoding="utf-8") == committed.read_text(encoding="utf-8")
