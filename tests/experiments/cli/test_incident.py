"""`ctxlab incident` and `ctxlab ablate`, from the command line's own entry point."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serving.assembler import IncidentClass
from tests.support.command import Run

EXAMPLE = Path(__file__).parents[3] / "examples" / "support_agent.json"
INJECTED = "runbook-injected"


@pytest.fixture
def saved(ctxlab: Run, tmp_path: Path) -> Path:
    assert ctxlab("assemble", EXAMPLE, "--save", tmp_path / "saved").code == 0
    return tmp_path / "saved"


def policy(folder: Path, name: str, injection_risk: float) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(f'name = "{name}"\n[weights]\ninjection_risk = {injection_risk}\n', encoding="utf-8")
    return path


def test_an_incident_is_built_and_checked_and_an_overblocking_policy_breaks_it(
    ctxlab: Run, tmp_path: Path, saved: Path
) -> None:
    out = tmp_path / "regression"
    cure = policy(tmp_path, "cautious", 10.0)
    done = ctxlab(
        *("incident", "build", saved, "--class", "poisoned_document", "--item", INJECTED),
        *("--policy", cure, "--keep", "runbook-401", "--out", out),
    )
    assert done.code == 0, done.err
    assert "runbook-injected dropped (utility_not_positive)" in " ".join(done.out.split())
    assert "fails under default, passes under cautious" in done.out
    assert sorted(path.name for path in (out / "cases").iterdir()) == [
        *("another_tenant.json", "beside_harmless.json", "harmless.json", "incident.json"),
        *("no_longer_holds.json", "permission_unknown.json"),
    ]
    good = ctxlab("incident", "check", out)
    assert good.code == 0
    assert good.out.splitlines()[0] == "passed  incident"
    for name, weight, broken in (("blind", 0.0, "incident"), ("paranoid", 100.0, "harmless")):
        bad = ctxlab("incident", "check", out, "--policy", policy(tmp_path, name, weight))
        assert bad.code == 1
        assert f"broken  {broken}" in bad.out
    shown = json.loads(ctxlab("incident", "check", out, "--policy", "default", "--json").out)
    assert shown["passed"] is False
    assert shown["recognised"] is True
    assert shown["cases"][0]["violations"] == [
        {"id": INJECTED, "expected": "dropped (utility_not_positive)", "got": "selected"}
    ]


def test_a_cure_by_label_comes_as_a_corrected_request(ctxlab: Run, tmp_path: Path, saved: Path) -> None:
    request: dict[str, Any] = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    for item in request["candidates"]:
        if item["id"] == INJECTED:
            item["scope"]["readers"] = []
    corrected = tmp_path / "corrected.json"
    corrected.write_text(json.dumps(request), encoding="utf-8")
    out = tmp_path / "regression"
    done = ctxlab(
        *("incident", "build", saved, "--class", "permission_leak", "--item", INJECTED),
        *("--request", corrected, "--out", out, "--json"),
    )
    assert done.code == 0, done.err
    names = [case["name"] for case in json.loads(done.out)["cases"]]
    assert names == [
        *("incident", "another_tenant", "permission_unknown", "no_longer_holds", "harmless"),
        *("beside_harmless", "allowed_reader"),
    ]
    assert ctxlab("incident", "check", out).code == 0


def test_a_regression_is_not_written_over_another(ctxlab: Run, tmp_path: Path, saved: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x", encoding="utf-8")
    done = ctxlab(
        *("incident", "build", saved, "--class", "poisoned_document", "--item", INJECTED),
        *("--policy", policy(tmp_path, "cautious", 10.0), "--out", tmp_path / "out"),
    )
    assert done.code == 2
    assert "is in use; name another" in done.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_a_folder_that_lacks_a_part_is_refused_by_name(ctxlab: Run, tmp_path: Path, saved: Path) -> None:
    line = ["incident", "build", saved, "--class", "poisoned_document", "--item", INJECTED, "--out"]
    for name in ("renderer.json", "policy.json", "request.json"):
        (saved / name).unlink()
        done = ctxlab(*line, tmp_path / "out")
        assert done.code == 2
        assert name in done.err
    done = ctxlab("incident", "check", saved)
    assert done.code == 2
    assert "holds no incident.json" in done.err


def test_a_case_under_another_name_is_refused(ctxlab: Run, tmp_path: Path, saved: Path) -> None:
    out = tmp_path / "out"
    cure = policy(tmp_path, "cautious", 10.0)
    ctxlab(
        *("incident", "build", saved, "--class", "poisoned_document", "--item", INJECTED),
        *("--policy", cure, "--out", out),
    )
    (out / "cases" / "harmless.json").rename(out / "cases" / "other.json")
    done = ctxlab("incident", "check", out)
    assert done.code == 2
    assert "expected the case 'other', but it says that it is 'harmless'" in done.err
    (out / "cases" / "other.json").unlink()
    (out / "cases" / "incident.json").unlink()
    done = ctxlab("incident", "check", out)
    assert done.code == 2
    assert "its first case is called 'incident'" in done.err


def test_the_help_names_every_class(ctxlab: Run) -> None:
    shown = ctxlab("incident", "build", "--help").out
    for one in IncidentClass:
        assert one.value in shown


def test_an_ablation_shows_what_each_layer_costs(ctxlab: Run) -> None:
    done = ctxlab("ablate", EXAMPLE)
    assert done.code == 0
    assert "an estimate" in done.err
    whole = json.loads(ctxlab("assemble", EXAMPLE, "--json").out)["packet"]["manifest"]
    shown = json.loads(ctxlab("ablate", EXAMPLE, "--json").out)
    assert shown["tokens"] == whole["budget"]["used"]
    assert [row["name"] for row in shown["ablations"]] == [
        row.split()[0] for row in done.out.splitlines()[1:] if row.strip() and not row.startswith("whole")
    ]
    by_name = {row["name"]: row for row in shown["ablations"]}
    knowledge = by_name["knowledge"]
    assert knowledge["tokens"] == shown["tokens"] + knowledge["change"]
    assert knowledge["change"] == -whole["tokens_by_layer"]["knowledge"]
    assert by_name["policy"]["removed"] == []
    assert by_name["policy"]["change"] == 0


def test_required_items_go_only_on_demand_and_a_kind_can_be_left_out(ctxlab: Run) -> None:
    line = ("ablate", EXAMPLE, "--by", "kind", "--remove-required", "--json")
    rows = {row["name"]: row for row in json.loads(ctxlab(*line).out)["ablations"]}
    assert rows["instruction"]["removed"] == ["policy", "role", "tool_guidance"]
    assert rows["instruction"]["change"] < 0
    done = ctxlab("ablate", EXAMPLE, "--by", "weight")
    assert done.code == 2
    assert "--by: expected layer or kind, but 'weight' came" in done.err


def test_what_takes_the_room_of_the_removed_is_named(ctxlab: Run, tmp_path: Path) -> None:
    request = {
        "context": {"tenant": "t", "actor": "u", "now": "2026-10-02"},
        "window": 60,
        "max_output": 10,
        "candidates": [
            {
                "id": "long",
                "payload": {"kind": "evidence", "text": "x" * 80},
                "scope": {"tenant": "t"},
                "tokens": 30,
            },
            {
                "id": "shot",
                "tokens": 30,
                "payload": {
                    "kind": "example",
                    "messages": [
                        {"role": "user", "content": "q" * 80},
                        {"role": "assistant", "content": "a"},
                    ],
                },
                "terms": {"relevance": 0.4},
            },
        ],
    }
    path = tmp_path / "request.json"
    path.write_text(json.dumps(request), encoding="utf-8")
    rows = json.loads(ctxlab("ablate", path, "--json").out)["ablations"]
    entered = {row["name"]: row["entered"] for row in rows}
    assert entered == {"task": [], "knowledge": ["shot"]}


def test_a_request_that_is_handed_off_is_ablated_too(ctxlab: Run, tmp_path: Path) -> None:
    request = json.loads(EXAMPLE.read_text(encoding="utf-8")) | {"window": 600}
    path = tmp_path / "request.json"
    path.write_text(json.dumps(request), encoding="utf-8")
    done = ctxlab("ablate", path)
    assert done.code == 0
    assert "too many (hand-off)" in done.out


def test_tools_that_look_alike_are_warned_about_only_where_they_are_offered(
    ctxlab: Run, tmp_path: Path
) -> None:
    request = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    twin = json.loads(json.dumps(request["tools"][0]))
    twin["id"], name = "tool:twin", twin["payload"]["spec"]["name"]
    twin["payload"]["spec"]["name"] = f"{name}s"
    request["tools"].append(twin)
    request["state"]["allowed_tools"].append(f"{name}s")
    path = tmp_path / "request.json"
    path.write_text(json.dumps(request), encoding="utf-8")
    done = ctxlab("assemble", path)
    assert f"warning: {name} and {name}s are nearly the same in name and description and schema" in done.err
    shown = json.loads(ctxlab("assemble", path, "--json").out)
    assert shown["similar_tools"][0]["alike"] == ["name", "description", "schema"]
    twin["scope"] = {"tenant": "somebody-else"}
    path.write_text(json.dumps(request), encoding="utf-8")
    done = ctxlab("assemble", path)
    assert "warning" not in done.err
    assert f"{name}s" not in done.err + done.out
