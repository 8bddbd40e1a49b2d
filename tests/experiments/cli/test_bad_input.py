"""Every bad file at every command that reads one: one sentence that names the place, exit code 2, no traceback."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.command import Run, one_sentence

EXAMPLE = Path(__file__).parents[3] / "examples" / "support_agent.json"
CRITICAL = "runbook-injected"


def example() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    return loaded


def changed(**fields: object) -> dict[str, Any]:
    return example() | fields


def with_context(**fields: object) -> dict[str, Any]:
    return changed(context=example()["context"] | fields)


def with_item(**fields: object) -> dict[str, Any]:
    request = example()
    request["candidates"][0] |= fields
    return request


def circular() -> dict[str, Any]:
    request = example()
    request["candidates"][0]["supersedes"] = ["policy"]
    request["candidates"][1]["supersedes"] = ["role"]
    return request


class Kept(NamedTuple):
    """What an incident left: the folder that was saved, the policy that cures it, and the regression."""

    saved: Path
    policy: Path
    regression: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An incident, saved and built once; every test breaks a copy of its own."""
    folder = tmp_path_factory.mktemp("incident")
    kept = in_folder(folder)
    kept.policy.write_text("[weights]\ninjection_risk = 10.0\n", encoding="utf-8")
    for arguments in (
        ["assemble", EXAMPLE, "--save", kept.saved],
        build(kept, "--out", kept.regression),
    ):
        command = [sys.executable, "-m", "experiments.cli.main", *map(str, arguments)]
        subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[3])
    return folder


@pytest.fixture
def kept(made: Path, tmp_path: Path) -> Kept:
    folder = tmp_path / "kept"
    shutil.copytree(made, folder)
    return in_folder(folder)


def in_folder(folder: Path) -> Kept:
    return Kept(folder / "saved", folder / "cure.toml", folder / "regression")


def build(kept: Kept, *more: object) -> list[object]:
    start: list[object] = ["incident", "build", kept.saved, "--class", "poisoned_document"]
    policy = [] if "--policy" in more else ["--policy", kept.policy]
    return [*start, "--item", CRITICAL, *policy, *more]


Place = Callable[[Kept, bytes], list[object]]
"""Puts bytes where a command reads them, and gives the command line."""


def given(data_file: str, command: Callable[[Kept, Path], list[object]]) -> Place:
    def put(kept: Kept, data: bytes) -> list[object]:
        path = kept.saved.parent / data_file
        path.write_bytes(data)
        return command(kept, path)

    return put


def inside(folder: str, name: str, command: Callable[[Kept], list[object]]) -> Place:
    def put(kept: Kept, data: bytes) -> list[object]:
        (getattr(kept, folder) / name).write_bytes(data)
        return command(kept)

    return put


def out(kept: Kept) -> list[object]:
    return ["--out", kept.saved.parent / "out"]


def built(kept: Kept) -> list[object]:
    return build(kept, *out(kept))


def checked(kept: Kept) -> list[object]:
    return ["incident", "check", kept.regression]


REQUESTS: dict[str, Place] = {
    "assemble": given("bad.json", lambda kept, path: ["assemble", path]),
    "ablate": given("bad.json", lambda kept, path: ["ablate", path]),
    "incident build --request": given(
        "bad.json", lambda kept, path: build(kept, "--request", path, *out(kept))
    ),
}
STORED_REQUESTS: dict[str, Place] = {
    "replay": inside("saved", "request.json", lambda kept: ["replay", kept.saved]),
    "diff": inside("saved", "request.json", lambda kept: ["diff", kept.saved, kept.saved]),
    "incident build": inside("saved", "request.json", built),
    "incident check": inside("regression", "request.json", checked),
}
CASES: dict[str, Place] = {
    "incident check, a case": inside("regression", "cases/harmless.json", checked),
}
POLICIES: dict[str, Place] = {
    "assemble --policy": given("bad.toml", lambda kept, path: ["assemble", EXAMPLE, "-p", path]),
    "ablate --policy": given("bad.toml", lambda kept, path: ["ablate", EXAMPLE, "-p", path]),
    "policy show": given("bad.toml", lambda kept, path: ["policy", "show", path]),
    "incident build --policy": given(
        "bad.toml", lambda kept, path: build(kept, "--policy", path, *out(kept))
    ),
    "incident check --policy": given("bad.toml", lambda kept, path: [*checked(kept), "-p", path]),
}
STORED_POLICIES: dict[str, Place] = {
    "replay, policy": inside("saved", "policy.json", lambda kept: ["replay", kept.saved]),
    "incident build, policy": inside("saved", "policy.json", built),
    "incident check, policy": inside("regression", "new_policy.json", checked),
    "incident check, old policy": inside("regression", "old_policy.json", checked),
}
MANIFESTS: dict[str, Place] = {
    "diff, manifest": inside("saved", "manifest.json", lambda kept: ["diff", kept.saved, kept.saved]),
    "replay, manifest": inside("saved", "manifest.json", lambda kept: ["replay", kept.saved]),
    "incident build, manifest": inside("saved", "manifest.json", built),
    "incident check, manifest": inside("regression", "manifest.json", checked),
    "incident check, incident": inside("regression", "incident.json", checked),
    "incident check, renderer": inside("regression", "renderer.json", checked),
}

BAD_SHAPES: dict[str, tuple[object, str]] = {
    "wrong type": (changed(window="large"), "AssemblyRequest.window"),
    "unknown field": (changed(windows=9), "AssemblyRequest.windows"),
    "missing field": ({"window": 9, "max_output": 1}, "AssemblyRequest.context"),
    "negative tokens": (with_item(tokens=-1), "candidates[0] (id role): ContextItem.tokens"),
    "unknown kind": (with_item(payload={"kind": "spell"}), "ContextItem.payload"),
    "not an item": (changed(tools=["x"]), "tools[0]: ContextItem"),
    "small window": (changed(window=512), "window must exceed max_output"),
    "no window": (changed(window=0), "AssemblyRequest.window"),
    "no tenant": (with_context(tenant=""), "RequestContext.tenant"),
    "tenant of another type": (with_context(tenant=7), "RequestContext.tenant"),
    "no actor": (with_context(actor=""), "RequestContext.actor"),
    "unknown stage": (changed(state={"stage": "party"}), "TaskState.stage"),
    "approval of nothing": (changed(state={"approved": True}), "TaskState: an approval holds for one"),
    "time before the calendar": (with_context(now="0001-01-01T00:00:00+14:00"), "RequestContext.now"),
    "not an object": ([1, 2], "expected a JSON object"),
    "lone surrogate": (changed(request_id="\ud800"), "lone surrogate"),
    "too many items": (changed(candidates=[{}] * 60_000), "at most 50,000 are read"),
}
BAD_WHOLES: dict[str, tuple[object, str]] = {
    "duplicate id": (changed(history=example()["history"] * 2), "'turn-000' comes twice"),
    "circular": (circular(), "circle"),
    "a turn among the candidates": (
        changed(candidates=[*example()["candidates"], *example()["history"]], history=[]),
        "has a place in time",
    ),
}
"""What only the assembler can find; the commands that judge a record give it as the ground of their verdict."""

BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is not JSON"),
    "torn": (b'{"window": ', "line 1 column 12"),
    "not UTF-8": (b'{"window": "\xff"}', "not UTF-8: byte 12 is 0xff"),
    "not a number": (b'{"window": NaN}', "NaN is not a JSON number"),
    "huge number": (b'{"window": ' + b"9" * 5000 + b"}", "5000 digits"),
    "repeated field": (b'{"window": 1, "window": 2}', "'window' comes twice"),
    "deep": (b"[" * 200_000, "nested too deeply"),
}
BAD_TOML: dict[str, tuple[bytes, str]] = {
    "broken": (b"carrier = ", "is not TOML"),
    "wrong value": (b'carrier = "pigeon"', "ContextPolicy.carrier"),
    "unknown field": (b"carier = 'user'", "ContextPolicy.carier"),
    "negative": (b"[weights]\nredundancy = -1", "UtilityWeights.redundancy"),
    "deep": (b"weights = " + b"[" * 50_000, "nested too deeply"),
    "not a permutation": (b'layer_order = ["task"]', "layer_order"),
    "not UTF-8": (b"name = '\xe9'", "not UTF-8"),
    "wrong type": (b"name = 2026-10-02", "ContextPolicy.name"),
    "target over threshold": (b"[masking]\nthreshold = 1\ntarget = 2", "the target must not exceed"),
}
BAD_POLICIES: dict[str, tuple[bytes, str]] = {
    "wrong value": (b'{"carrier": "pigeon"}', "ContextPolicy.carrier"),
    "unknown field": (b'{"carier": "user"}', "ContextPolicy.carier"),
    "wrong type": (b'{"weights": 3}', "UtilityWeights"),
    "torn": (b"{", "is not JSON"),
}
BAD_OTHERS: dict[str, tuple[bytes, str]] = {
    "torn": (b"{", "is not JSON"),
    "not an object": (b"[]", "expected a JSON object"),
    "missing field": (b"{}", "field required"),
}


def matrix(places: dict[str, Place], inputs: dict[str, tuple[Any, str]]) -> Any:
    return [
        pytest.param(place, data, words, id=f"{command}: {what}")
        for command, place in places.items()
        for what, (data, words) in inputs.items()
    ]


def as_json(inputs: dict[str, tuple[object, str]]) -> dict[str, tuple[bytes, str]]:
    return {name: (json.dumps(body).encode(), words) for name, (body, words) in inputs.items()}


def as_case(inputs: dict[str, tuple[object, str]]) -> dict[str, tuple[bytes, str]]:
    def case(request: object) -> bytes:
        return json.dumps({"name": "harmless", "about": "", "expectation": {}, "request": request}).encode()

    return {name: (case(body), words) for name, (body, words) in inputs.items()}


@pytest.mark.parametrize(
    ("place", "data", "words"),
    [
        *matrix(REQUESTS, as_json(BAD_SHAPES) | as_json(BAD_WHOLES) | BAD_FILES),
        *matrix(STORED_REQUESTS, as_json(BAD_SHAPES) | BAD_FILES),
        *matrix(CASES, as_case(BAD_SHAPES) | BAD_FILES),
        *matrix(POLICIES, BAD_TOML),
        *matrix(STORED_POLICIES, BAD_POLICIES),
        *matrix(MANIFESTS, BAD_OTHERS),
    ],
)
def test_a_bad_file_gets_one_sentence_that_names_the_place(
    ctxlab: Run, kept: Kept, place: Place, data: bytes, words: str
) -> None:
    done = ctxlab(*place(kept, data))
    one_sentence(done, words)
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "place",
    [
        *REQUESTS.values(),
        *STORED_REQUESTS.values(),
        *CASES.values(),
        *POLICIES.values(),
        *STORED_POLICIES.values(),
        *MANIFESTS.values(),
    ],
    ids=[*REQUESTS, *STORED_REQUESTS, *CASES, *POLICIES, *STORED_POLICIES, *MANIFESTS],
)
def test_a_file_of_fifty_megabytes_is_refused_by_its_size(ctxlab: Run, kept: Kept, place: Place) -> None:
    line = place(kept, b"")
    files = (path for path in kept.saved.parent.rglob("*") if path.is_file())
    empty = next(path for path in files if path.stat().st_size == 0)
    with empty.open("wb") as file:
        file.truncate(50_000_000)
    one_sentence(ctxlab(*line), "more than 32,000,000 bytes")


@pytest.mark.parametrize(("body", "words"), BAD_WHOLES.values(), ids=BAD_WHOLES)
def test_a_verdict_on_a_stored_request_that_makes_no_sense_gives_the_same_ground(
    ctxlab: Run, kept: Kept, body: object, words: str
) -> None:
    data = json.dumps(body).encode()
    replayed = ctxlab(*STORED_REQUESTS["replay"](kept, data))
    assert replayed.code == 1
    assert "refused" in replayed.out
    assert words in replayed.out
    one_sentence(ctxlab(*built(kept)), "a record that replays exactly, but this one is")
    case = json.loads((kept.regression / "cases" / "harmless.json").read_text(encoding="utf-8"))
    done = ctxlab(*CASES["incident check, a case"](kept, json.dumps(case | {"request": body}).encode()))
    assert done.code == 1
    assert words in done.out.replace("\n", " ")


def test_a_tenant_that_nobody_knows_owns_nothing_and_learns_nothing(ctxlab: Run, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(with_context(tenant="acme1")), encoding="utf-8")
    done = ctxlab("assemble", path, "--json")
    assert done.code == 0
    owned = [item["id"] for item in example()["candidates"] if item.get("scope", {}).get("tenant")]
    assert owned
    assert not [item_id for item_id in owned if f'"{item_id}"' in done.out]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--class", "bad_luck", "--item", CRITICAL], "--class: expected one of wrong_policy, "),
        (["--class", "poisoned_document", "--item", "no-such"], "'no-such' is none"),
        (["--class", "poisoned_document", "--item", CRITICAL, "--policy", "no-such"], "neither"),
        (["--class", "poisoned_document", "--item", CRITICAL], "still lets runbook-injected in"),
        (["--class", "stale_retrieval", "--item", "runbook-401-old"], "passes this case already"),
    ],
)
def test_an_incident_that_cannot_be_built_says_why(
    ctxlab: Run, kept: Kept, arguments: list[object], words: str
) -> None:
    one_sentence(ctxlab("incident", "build", kept.saved, *arguments, *out(kept)), words)
    assert not (kept.saved.parent / "out").exists()
