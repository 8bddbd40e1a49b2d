"""What `examples/README.md` says of each example, from the command line's own entry point."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from experiments.cli.assembly_files import policy_files
from experiments.cli.main import main
from tests.support.tiny_models import tiny_model

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
REQUESTS = sorted(EXAMPLES.glob("*.json"))
WORKED: dict[str, Any] = json.loads(
    (ROOT / "tests" / "fixtures" / "assembler.json").read_text(encoding="utf-8")
)


class Done(NamedTuple):
    code: int
    out: str


Run = Callable[..., Done]


@pytest.fixture
def ctxlab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(ROOT)

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["ctxlab", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(int(ended.value.code or 0), capsys.readouterr().out)

    return run


def manifest_of(done: Done) -> dict[str, Any]:
    shown = json.loads(done.out)
    manifest: dict[str, Any] = shown[shown["outcome"]]["manifest"]
    return manifest


def ids(items: list[dict[str, Any]]) -> list[str]:
    return [item["id"] for item in items]


@pytest.mark.parametrize("policy", sorted(policy_files()))
@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_every_example_is_a_packet_under_every_policy_and_replays_exactly(
    ctxlab: Run, tmp_path: Path, path: Path, policy: str
) -> None:
    assert ctxlab("assemble", path, "--policy", policy, "--save", tmp_path / "kept").code == 0
    assert ctxlab("replay", tmp_path / "kept") == Done(0, "exact\n")


def test_every_example_has_its_line_in_the_table() -> None:
    named = set(re.findall(r"examples/(\w+\.\w+)", (EXAMPLES / "README.md").read_text(encoding="utf-8")))
    assert named == {path.name for path in EXAMPLES.iterdir() if path.suffix != ".md"}


def test_the_log_misses_by_its_clock_alone(ctxlab: Run, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, "qwen3")
    done = ctxlab("lint", "examples/support_log.jsonl", "--model", folder, "--json")
    report = json.loads(done.out)
    assert (done.code, report["requests"], report["skipped_lines"]) == (0, 4, 0)
    assert [(group["cause"], group["requests"]) for group in report["groups"]] == [("clock", 3)]


def test_j42_comes_out_as_published(ctxlab: Run) -> None:
    case = WORKED["j42"]["cases"][0]
    manifest = manifest_of(ctxlab("assemble", "examples/j42_export.json", "--json"))
    assert ids(manifest["selected"]) == case["selected"]
    assert manifest["budget"]["window"] == case["limit"]
    assert (manifest["budget"]["used"], manifest["budget"]["unused"]) == (case["input"], case["left"])
    left_out = {item["id"]: item for item in manifest["dropped"]}
    assert left_out["E6_attachment"]["reason"] == "utility_not_positive"
    assert left_out["E6_attachment"]["tokens"] < case["left"], "it would have fitted"


def test_j42_in_the_smaller_window_is_a_hand_off_that_keeps_all_it_requires(ctxlab: Run) -> None:
    case = WORKED["j42"]["cases"][1]
    done = ctxlab("assemble", "examples/j42_export.json", "--window", case["limit"], "--json")
    assert done.code == 1
    assert json.loads(done.out)["hand_off"]["shortfall"] == case["shortfall"]
    assert ids(manifest_of(done)["selected"]) == case["required"]


def test_pack_context_leaves_unused_what_nothing_worth_having_would_fill(ctxlab: Run) -> None:
    case = WORKED["pack_context"]["cases"][0]
    done = ctxlab("assemble", "examples/pack_context.json", "--json")
    manifest = manifest_of(done)
    assert ids(manifest["selected"]) == case["selected"]
    assert ids(manifest["dropped"]) == case["dropped"]
    assert (manifest["budget"]["used"], manifest["budget"]["unused"]) == (case["used"], case["unused"])
    worth = {item["id"]: item["utility"] for item in (*manifest["selected"], *manifest["dropped"])}
    assert worth == case["utility"]
    assert "other-tenant-doc" not in done.out


def test_load_memory_keeps_a_fact_and_a_hypothesis_apart_and_names_no_other_user(ctxlab: Run) -> None:
    done = ctxlab("assemble", "examples/load_memory.json", "--json")
    manifest = manifest_of(done)
    assert manifest["memory"] == {"facts": ["key-age"], "hypotheses": ["answer-length"]}
    assert {item["id"]: item["reason"] for item in manifest["dropped"]} == {
        "card": "memory_purpose",
        "no-provenance": "memory_source",
        "old-plan": "memory_expired",
    }
    assert "other-user" not in done.out


def test_the_sizes_of_items_out_of_scope_decide_nothing(ctxlab: Run, tmp_path: Path) -> None:
    request = json.loads((EXAMPLES / "pack_context.json").read_text(encoding="utf-8"))
    request["candidates"] = [item for item in request["candidates"] if item["scope"]["tenant"] == "t1"]
    without = tmp_path / "without.json"
    without.write_text(json.dumps(request), encoding="utf-8")
    both = [ctxlab("assemble", path, "--json").out for path in (EXAMPLES / "pack_context.json", without)]
    assert both[0] == both[1]


def test_a_window_that_leaves_nothing_to_fill_is_refused(ctxlab: Run) -> None:
    assert ctxlab("assemble", "examples/j42_export.json", "--window", 300) == Done(2, "")


def test_the_break_even_prints_what_was_published_and_what_counting_gives() -> None:
    done = subprocess.run(
        [sys.executable, "examples/status_break_even.py"],
        cwd=ROOT, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    rows = [[float(word) for word in line.split()] for line in done.stdout.splitlines()[2:]]
    corrected = WORKED["status_break_even_corrected"]["cases"][:2]
    assert rows == [
        [case["k"], 60.0, case["N_star"], case["replace_first_cheaper_at_N"]] for case in corrected
    ]
