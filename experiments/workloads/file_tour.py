"""A scripted tour through a frozen folder: real tools, scripted words, the same bytes every time."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from experiments.agent.tools import FileTools
from serving.assembler import AssistantTurn, ToolCall, ToolResult, ToolStep, Trajectory, Turn, UserTurn
from serving.errors import LabError

SNAPSHOT = Path(__file__).parent / "snapshot"
"""Thirteen small text files about a berth-booking service; nothing outside is ever read."""

SYSTEM = (
    "You are a careful engineer. You look into the files of the project with your tools, one step at a time, "
    "say in one sentence what you look for, and never guess what a file holds."
)
TASK = "Ticket T-{ticket}: berth 7 was given to two ships on one morning. Find out why, with the lines that prove it."
SECOND_TASK = "Good. Now check whether invoices could be sent twice for the same reason."


@dataclass(frozen=True)
class _Step:
    says: str
    calls: tuple[tuple[str, dict[str, str | int]], ...]


def file_tour(seed: int = 0, root: Path = SNAPSHOT, *, thinking: bool = False) -> Trajectory:
    """Sixteen calls: fourteen tool steps (two of them with parallel calls), two answers, two user turns.

    The tools really run, on files that never change. `seed` draws the order in which the tour looks into
    them, and the ticket's number: no two seeds are the same work, and all are of one kind and size. `thinking`:
    before each of its messages the model thought two sentences, as the API's field `reasoning` brings them.
    """
    tools = FileTools(root)
    order = random.Random(seed)  # noqa: S311 - an order, not a secret
    first, second = [_FIRST_LOOK, *order.sample(_WHY, len(_WHY))], order.sample(_TWICE, len(_TWICE))
    turns: list[Turn] = [UserTurn(text=TASK.format(ticket=1000 + seed))]
    turns += _played(first, tools, start=0)
    turns.append(
        AssistantTurn(
            text="The hold of berth 7 ran out after 30 minutes although the clerk was talking to R-118, so R-121 "
            "got it: logs/planner.log 09:42 and 09:43, config/planner.ini extend_on_contact = no."
        )
    )
    turns.append(UserTurn(text=SECOND_TASK))
    turns += _played(second, tools, start=len(first))
    turns.append(
        AssistantTurn(
            text="No: config/billing.ini keeps the key, and logs/billing.log shows one invoice sent once."
        )
    )
    if thinking:
        turns = [_thought_through(number, turn) for number, turn in enumerate(turns)]
    return Trajectory(system=SYSTEM, tools=tools.specs, turns=tuple(turns))


def _thought_through(number: int, turn: Turn) -> Turn:
    """The turn with what the model thought before it; a user's turn is nobody's thought."""
    match turn:
        case ToolStep(calls=calls):
            looked_at = ", then ".join(call.arguments for call in calls)
            thought = (
                f"So far {number} messages tell how the berth was given away, and none of them closes the ticket. "
                f"What I have not seen yet is {looked_at}, so I look there before I say anything."
            )
        case AssistantTurn():
            thought = (
                f"After {number} messages the files agree with each other and nothing is left to look at. "
                "I name the lines that prove it and nothing else."
            )
        case _:
            return turn
    return turn.model_copy(update={"reasoning": thought})


_FIRST_LOOK = _Step("I look at what there is.", (("list_dir", {"path": "."}),))

_WHY = (
    _Step("I read the overview.", (("read_file", {"path": "README.md"}),)),
    _Step("How does the planner work?", (("read_file", {"path": "docs/planner.md"}),)),
    _Step("Where is berth 7 mentioned?", (("grep", {"pattern": "berth=7"}),)),
    _Step("How is the planner configured?", (("read_file", {"path": "config/planner.ini"}),)),
    _Step(
        "The intake may matter: its text and its settings at once.",
        (("read_file", {"path": "docs/intake.md"}), ("read_file", {"path": "config/intake.ini"})),
    ),
    _Step("Did this happen before?", (("grep", {"pattern": "berth 7", "path": "docs"}),)),
    _Step("The whole morning, in order.", (("read_file", {"path": "logs/planner.log"}),)),
)
"""Steps of the first task; each makes sense at any place."""

_TWICE = (
    _Step("I look for earlier reports.", (("read_file", {"path": "docs/incidents.md"}),)),
    _Step("Where do invoices appear in the logs?", (("grep", {"pattern": "invoice=", "path": "logs"}),)),
    _Step("How does billing work?", (("read_file", {"path": "docs/billing.md"}),)),
    _Step(
        "Its settings, and all log files there are.",
        (("read_file", {"path": "config/billing.ini"}), ("find_files", {"pattern": "*.log"})),
    ),
    _Step("How are retries set?", (("grep", {"pattern": "retry", "path": "config"}),)),
    _Step("The prices, to be complete.", (("read_file", {"path": "data/rates.csv"}),)),
)
"""Steps of the second task."""


def _played(steps: list[_Step], tools: FileTools, *, start: int) -> list[Turn]:
    turns: list[Turn] = []
    for number, step in enumerate(steps, start):
        calls = tuple(
            ToolCall(id=f"call-{number:02d}-{place}", name=name, arguments=json.dumps(arguments))
            for place, (name, arguments) in enumerate(step.calls)
        )
        results = tuple(ToolResult(call_id=call.id, content=_run(tools, call)) for call in calls)
        turns.append(ToolStep(calls=calls, results=results, text=step.says))
    return turns


def _run(tools: FileTools, call: ToolCall) -> str:
    outcome = tools.run(call.name, call.arguments)
    if not outcome.ok:
        raise LabError(
            f"Every step of the tour was expected to succeed, and {call.name}({call.arguments}) says: {outcome.text} "
            "Were the files of the tour changed?"
        )
    return outcome.text
