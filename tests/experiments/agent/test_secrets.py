"""Secrets planted where tools look: sent nowhere, stored nowhere, and what was sent is what is stored."""

from __future__ import annotations

import html
import json
from pathlib import Path
from random import Random

from experiments.agent.loop import run_turn
from experiments.agent.saving import SavedRun, TrajectoryWriter, open_run
from experiments.agent.settings import SECRETS, TurnSettings
from experiments.agent.tools import GroupName, NoIsolationError, Page, Workspace, World, build_toolbox
from experiments.agent.unmeasured import UnmeasuredCaller
from experiments.cli.trajectory import write_run_page
from serving.assembler import Trajectory
from serving.call import DecodeOptions
from serving.client import Client
from serving.stores import ArtifactStore
from tests.support.scripted import CONTEXT
from tests.support.secret_formats import BLOCKS, TOKENS
from tests.support.told_server import Answer, calling, saying, told_server

PERSONAL = {"iban", "payment_card", "us_ssn", "email", "phone"}
"""Not secrets of a door: the user's own files are full of them, and stay as they are."""


def planted() -> dict[str, str]:
    """One secret of every kind that opens a door, by the formats that their issuers publish."""
    pick = Random(7)
    kinds = {**TOKENS, **BLOCKS}
    return {kind: make(pick) for kind, make in kinds.items() if kind not in PERSONAL}


def places(folder: Path, secrets: dict[str, str]) -> tuple[World, list[Answer]]:
    """A world that holds them, and a model that reads every one of them in several ways."""
    answers: list[Answer] = []
    for kind, secret in secrets.items():
        (folder / f"{kind}.txt").write_text(f"first\n{secret}\nlast\n")
        answers.append(calling("read_file", json.dumps({"path": f"{kind}.txt"})))
    every = "\n".join(secrets.values())
    (folder / "all.txt").write_text(f"{every}\n" * 3)
    (folder / "long.txt").write_text("".join(f"{'x' * 390} {secret}\n" for secret in secrets.values()))
    for path in (f"{kind}.txt" for kind in BLOCKS):
        # In the middle of a key no format tells it: only the whole file does.
        answers.append(calling("read_file", json.dumps({"path": path, "start_line": 5, "max_lines": 3})))
        answers.append(calling("tail", json.dumps({"path": path, "lines": 3})))
    for path in ("all.txt", "long.txt"):
        answers.append(calling("read_file", json.dumps({"path": path})))
        answers.append(calling("grep", json.dumps({"pattern": "[A-Za-z0-9]", "path": path})))
    page = Page("https://leak.example/", f"Keys {secrets['github_token']}", f"{'x ' * 50}\n{every}")
    answers.append(calling("web_search", json.dumps({"query": "keys"})))
    answers.append(calling("open_page", json.dumps({"url": page.url})))
    world = World(workspace=Workspace(folder), pages=(page,), redactor=SECRETS)
    return world, answers


def require_absent(data: bytes, secrets: dict[str, str], where: object) -> None:
    """No line of a secret, as it is or as JSON or HTML spell it; a short line may be a word of anybody's."""
    for kind, secret in secrets.items():
        for line in secret.splitlines():
            if len(line) >= 16 and "PRIVATE KEY" not in line and not line.startswith(("Proc-", "Version:")):
                for spelt in {line, json.dumps(line)[1:-1], html.escape(line)}:
                    assert spelt.encode() not in data, (kind, where)


def test_no_byte_that_was_sent_or_stored_holds_a_planted_secret(tmp_path: Path) -> None:
    secrets = planted()
    assert len(secrets) >= 30
    (tmp_path / "root").mkdir()
    world, answers = places(tmp_path / "root", secrets)
    groups = [GroupName.FILES, GroupName.WEB, GroupName.PYTHON]
    program = f"import sys\nprint({list(secrets.values())!r})\nfor s in {list(secrets.values())!r}: print(s)"
    try:
        tools = build_toolbox(groups, world)
        answers.append(
            calling("run_python", json.dumps({"code": program}))
        )  # the model wrote them itself, too
    except NoIsolationError:
        tools = build_toolbox(groups[:2], world)
    answers.append(saying(f"I found {secrets['github_token']} and {secrets['openai_key']}."))
    run = tmp_path / "run"
    settings = TurnSettings(
        context=CONTEXT,
        window=2_000_000,
        decode=DecodeOptions(max_tokens=50),
        salt="s",
        run_id="r",
        max_iterations=200,
        artifacts=ArtifactStore(tmp_path / "artifacts"),
        longest_result=3_000,
    )
    task = f"Look at {secrets['slack_token']}."
    saved = SavedRun(task=task, model="told", policy=settings.policy, started_at=CONTEXT.now)
    start = Trajectory(tools=tools.specs, turns=())
    with told_server(answers) as told, Client(told.url) as client:
        turn = run_turn(UnmeasuredCaller(client, "told"), tools, start, task, settings)
        with TrajectoryWriter(run, saved, SECRETS) as writer:
            for event in turn:
                writer.take(event)
    write_run_page(run)

    assert len(told.bodies) == len(answers)
    for number, body in enumerate(told.bodies):
        require_absent(json.dumps(body, ensure_ascii=False).encode(), secrets, f"request {number}")
    files = [path for folder in (run, tmp_path / "artifacts") for path in folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"run.json", "steps.jsonl", "trajectory.json", "report.html"}
    assert len([path for path in files if "artifacts" in path.parts]) > 1
    for path in files:
        require_absent(path.read_bytes(), secrets, path)

    steps = open_run(run).steps
    assert len(steps) == len(told.bodies)
    for step, body in zip(steps, told.bodies, strict=True):
        packet = {"messages": [message.to_api() for message in step.messages]}
        if step.tools:
            packet["tools"] = [tool.to_api() for tool in step.tools]
        request = step.exchange["request"]
        assert isinstance(request, dict)
        assert {**request, **packet} == body
    # What was read and cut stands there as a word of its own, so the model knows that something was there.
    assert sum("redacted" in json.dumps(body["messages"][-1]).lower() for body in told.bodies) > 30
