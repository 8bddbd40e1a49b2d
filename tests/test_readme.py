from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli.main import app
from experiments.cli.studies import STUDIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

CREDITS = (
    "Bojie Li",
    "V. Dubrov",
    "practical context design",
    "AI Agents Fundamentals",
    "Lost in the Middle",
    "RULER",
    "StreamingLLM",
    "ReAct",
)


def indented_blocks(heading: str) -> list[str]:
    section = README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    |\n))+", section, flags=re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE).strip() for block in blocks if block.strip()]


def without_nonces(text: str) -> str:
    return re.sub(r"(?<=<evidence:|/evidence:)[0-9a-f]{8}", "nonce", text)


def test_the_library_in_ten_lines_has_ten_lines_and_prints_what_the_page_shows() -> None:
    program, shown = indented_blocks("The library in ten lines")
    assert len([line for line in program.splitlines() if line]) == 10
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert without_nonces(done.stdout.strip()) == without_nonces(shown)


@pytest.mark.parametrize("source", CREDITS)
def test_the_page_credits_where_its_questions_come_from(source: str) -> None:
    assert source in " ".join(README.partition("\n## Credits\n")[2].split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_on_the_map_and_every_request_that_the_page_runs_is_there() -> None:
    assert [page.name for page in PAGES[1:] if f"](docs/{page.name})" not in README] == []
    paths = re.findall(r"ctxlab assemble (\S+\.json)", README)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_shows_is_one(page: Path) -> None:
    shown = set(re.findall(r"(?:bin/|`)ctxlab (?:run )?([a-z][a-z-]+)", page.read_text(encoding="utf-8")))
    known = {command.name for command in app.registered_commands} | {
        group.name for group in app.registered_groups
    }
    assert shown <= known | set(STUDIES)
