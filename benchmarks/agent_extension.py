"""Whether each request of a live agent extends the one before: prompt, answer, and at which named drift not.

    python -m benchmarks.agent_extension    # twelve conversations of about two minutes, on two cores
    python -m benchmarks.agent_extension --model qwen3-4b --conversations 10

Conversations of two questions with tools, on the chat surface and on the token-in surface, under append-only
policies. Counted are pairs of neighbouring requests: the later one's ids begin with the earlier one's prompt;
they go on with what was generated then; if not, why. And of every call: the ids that the server read against
those rendered here, and the cached tokens that it reports against those predicted.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from experiments.agent.drift import extension
from experiments.agent.events import Answer, CallFinished, GaveUp
from experiments.agent.loop import run_turn
from experiments.agent.settings import TurnSettings
from experiments.agent.tokenin import TokenInCaller
from experiments.agent.tools import GroupName, Workspace, World, build_toolbox
from serving.assembler import BarMode, BarPolicy, ContextPolicy, RequestContext, Trajectory
from serving.call import Caller, DecodeOptions, MeasuredCall
from serving.client import Client
from serving.launch import LaunchOptions, launch, plan_launch
from serving.models import ModelFolder
from serving.probe import ServerFacts, read_server_facts

SYSTEM = "You answer with the help of the tools you have. Call one whenever it can tell what you are asked."
GROUPS = (GroupName.FILES, GroupName.DIRECTORY, GroupName.CLOCK, GroupName.CALCULATOR, GroupName.CURRENCY)
QUESTIONS = (
    "How many lines has notes.txt?",
    "What is 37 * 41 + 5?",
    "What time is it?",
    "Which files are in the folder src?",
    "How much are 250 EUR in USD?",
    "Which line of notes.txt names the harbour?",
    "Read src/app.py and say which functions it defines.",
    "What is the square root of 1764, and what is half of it?",
    "Which is larger, notes.txt or src/app.py?",
    "In which folder do you stand?",
)
NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
WINDOW = 8192


@dataclass
class Tally:
    """One surface under one policy, added up."""

    calls: int = 0
    turns: Counter[str] = field(default_factory=Counter)
    forms: Counter[str] = field(default_factory=Counter)
    pairs: int = 0
    prompt_extended: int = 0
    answer_extended: int = 0
    drifts: Counter[str] = field(default_factory=Counter)
    ids_equal: int = 0
    cached_as_predicted: int = 0

    def add(self, calls: list[MeasuredCall]) -> None:
        """Add the calls of one conversation, in order."""
        self.calls += len(calls)
        self.ids_equal += sum(call.ids_agree is True for call in calls)
        self.cached_as_predicted += sum(call.prediction_agrees is True for call in calls)
        for before, now in pairwise(calls):
            found = extension(before, now)
            self.pairs += 1
            self.prompt_extended += found.of_prompt
            self.answer_extended += found.of_answer
            if found.cause is not None:
                self.drifts[found.cause.value] += 1

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"  {self.calls} calls; turns: {_counts(self.turns)}; call forms: {_counts(self.forms)}"
        yield (
            f"  of {self.pairs} later requests {self.prompt_extended} begin with the prompt before, "
            f"{self.answer_extended} go on with its answer; drift: {_counts(self.drifts) or 'none'}"
        )
        yield (
            f"  ids as rendered here: {self.ids_equal} of {self.calls}; "
            f"cached tokens as predicted: {self.cached_as_predicted} of {self.calls}"
        )


def policies() -> dict[str, ContextPolicy]:
    """Those under which a log only grows."""
    return {
        "default": ContextPolicy(),
        "status-bar-append": ContextPolicy(
            name="status-bar-append", status_bar=BarPolicy(mode=BarMode.APPEND)
        ),
    }


def workspace(folder: Path) -> Workspace:
    """A small folder that the questions are about."""
    (folder / "src").mkdir()
    (folder / "notes.txt").write_text(
        "".join(f"Note {n}: {'the harbour is closed' if n == 23 else 'nothing new'}.\n" for n in range(40))
    )
    (folder / "src" / "app.py").write_text(
        "def first():\n    return 1\n\n\ndef second():\n    return first()\n"
    )
    return Workspace(folder)


def converse(
    client: Client,
    model: ModelFolder,
    facts: ServerFacts,
    policy: ContextPolicy,
    *,
    token_in: bool,
    count: int,
) -> Tally:
    """Hold `count` conversations, each under its own salt."""
    tally = Tally()
    assert facts.block_size is not None
    for number in range(count):
        print(f"    conversation {number + 1} of {count}", file=sys.stderr, flush=True)
        made = TokenInCaller if token_in else Caller
        caller = made(client, model, block_size=facts.block_size, num_blocks=facts.num_blocks, strict=False)
        settings = TurnSettings(
            context=RequestContext(tenant="bench", actor="agent", now=NOW),
            window=WINDOW,
            decode=DecodeOptions(max_tokens=160),
            salt=f"extension-{uuid4().hex}",
            policy=policy,
            max_iterations=5,
            token_in=token_in,
        )
        calls: list[MeasuredCall] = []
        with TemporaryDirectory() as folder:
            tools = build_toolbox(GROUPS, World(workspace=workspace(Path(folder))))
            trajectory = Trajectory(system=SYSTEM, tools=tools.specs, turns=())
            progress = None
            for question in (QUESTIONS[number % len(QUESTIONS)], QUESTIONS[(number + 3) % len(QUESTIONS)]):
                for event in run_turn(caller, tools, trajectory, question, settings, progress=progress):
                    match event:
                        case CallFinished(call=MeasuredCall() as call, said=said):
                            calls.append(call)
                            tally.forms[said.form.value] += 1
                        case Answer(trajectory=grown, progress=known):
                            tally.turns["answered"] += 1
                            trajectory, progress = grown, known
                        case GaveUp(trajectory=grown, progress=known, reason=reason):
                            tally.turns[reason.value] += 1
                            trajectory, progress = grown, known
        tally.add(calls)
    return tally


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counted.items()))


def main() -> None:
    """Serve the model, hold the conversations, print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--conversations", type=int, default=3, help="for each surface and policy")
    arguments = parser.parse_args()
    plan = plan_launch(LaunchOptions(model=arguments.model, port=0, max_model_len=WINDOW))
    with launch(plan) as engine, Client(engine.base_url) as client:
        facts = read_server_facts(engine.base_url, plan.folder.name)
        print(f"{plan.folder.name}, vllm {facts.version}, block size {facts.block_size}", flush=True)
        for token_in in (False, True):
            for name, policy in policies().items():
                print(f"{'token-in' if token_in else 'chat'} surface, policy {name}", flush=True)
                tally = converse(
                    client, plan.folder, facts, policy, token_in=token_in, count=arguments.conversations
                )
                print("\n".join(tally.lines()), flush=True)


if __name__ == "__main__":
    main()
