from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

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


def test_every_file_that_the_page_links_to_or_runs_is_there() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)", README)
    paths = re.findall(r"ctxlab assemble (\S+\.json)", README)
    assert paths
    assert [path for path in (*links, *paths) if not (ROOT / path).exists()] == []
