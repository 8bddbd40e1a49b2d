"""The bench environment stands beside the lab's own: same versions where both have a package, and no way back."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "requirements" / "bench.txt"
CLIENTS = ROOT / "requirements" / "bench-clients.txt"
LAB = ROOT / "requirements" / "cpu-linux.txt"
PEERS = {"astromesh-context", "langchain-core"}


def pins(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = (re.match(r"([a-z0-9-]+)==(\S+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def test_a_package_of_both_environments_has_one_version() -> None:
    bench, lab = pins(BENCH), pins(LAB)
    assert bench.keys() & lab.keys() > {"pydantic", "pydantic-core"}
    assert {name: bench[name] for name in bench.keys() & lab.keys()} == {
        name: lab[name] for name in bench.keys() & lab.keys()
    }


def test_what_the_lab_is_compared_with_is_none_of_its_own_packages() -> None:
    assert pins(BENCH).keys() >= PEERS
    assert not pins(LAB).keys() & PEERS
    assert not any(peer in (ROOT / "pyproject.toml").read_text(encoding="utf-8") for peer in PEERS)


def test_another_client_is_none_of_the_labs_packages() -> None:
    assert "guidellm" in pins(CLIENTS)
    assert "guidellm" not in pins(LAB)


@pytest.mark.parametrize("path", [BENCH, CLIENTS], ids=lambda path: path.stem)
def test_every_pin_of_a_bench_environment_has_a_hash(path: Path) -> None:
    entries = re.split(r"\n(?=\S)", path.read_text(encoding="utf-8"))
    pinned = [entry for entry in entries if not entry.startswith("#")]
    assert pinned
    assert all("==" in entry and "--hash=sha256:" in entry for entry in pinned)


def test_the_assembler_needs_of_all_packages_only_those_of_the_bench_environment() -> None:
    program = (
        "import sys\nbefore = set(sys.modules)\nimport serving.assembler\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*(name for name in new - sys.stdlib_module_names - {'serving'} if name[0] != '_'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {name.replace("_", "-") for name in done.stdout.split()}
    assert "pydantic" in loaded
    assert loaded <= pins(BENCH).keys()
