"""The tools of the live study: a folder to read, and an answer that has a place for every value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from experiments.agent.tools import (
    FINISH,
    Failure,
    FileTools,
    GroupName,
    Tool,
    Toolbox,
    Workspace,
    World,
    build_toolbox,
)
from experiments.agent.tools.definitions import Arguments, OnePath, ReadFile
from experiments.agent.tools.outcome import Reply, ToolError
from experiments.agent.tools.tool import ALL_STAGES, tool
from experiments.workloads.file_questions import FileQuestion
from experiments.workloads.file_tour import SNAPSHOT

LOOKING: Final = frozenset({"list_dir", "find_files"})
"""The file tools beside the one that reads. None that a model of 1.5B takes for a way of reading, such as `grep` for a
value that it has just seen."""


class Values(Arguments):
    """The answer: a place for each value, for models of this size name the last one and forget the others."""

    first: str
    second: str
    third: str

    @property
    def text(self) -> str:
        """All of them in one line."""
        return "; ".join((self.first, self.second, self.third))


def question_tools(question: FileQuestion) -> Toolbox:
    """What the agent has while it works on a question: the same definitions whatever the question."""
    workspace = Workspace(SNAPSHOT)
    looking = build_toolbox((GroupName.FILES,), World(workspace=workspace)).tools
    idle = build_toolbox((GroupName.CLOCK, GroupName.WEATHER)).tools
    reading = _Reading(question, FileTools(workspace))
    return Toolbox((reading.read, *(one for one in looking if one.name in LOOKING), *idle, reading.finish))


@dataclass
class _Reading:
    """Which files of a question were read. Every result names the next step, as the to-do list of a harness does:
    what a context loses is then the values, which is what the study asks about, and not the plan.
    """

    question: FileQuestion
    files: FileTools
    seen: set[str] = field(default_factory=set)

    @property
    def read(self) -> Tool:
        """`read_file` with a path and nothing else: small models fill in every number that they may, and read one
        line.
        """
        return tool(
            "read_file",
            "Read a whole text file.",
            OnePath,
            self._read,
            failures=(Failure.NOT_FOUND, Failure.REFUSED),
            stages=ALL_STAGES,
        )

    @property
    def finish(self) -> Tool:
        """`finish`, refused while a file that the question names is unread."""
        return tool(
            FINISH,
            "Answer with the three values, in the order in which they were asked for.",
            Values,
            self._finish,
            failures=(Failure.REFUSED,),
            stages=ALL_STAGES,
        )

    def _read(self, asked: OnePath) -> Reply:
        text = self.files.answer("read_file", ReadFile(path=asked.path))
        self.seen.add(asked.path)
        return Reply(f"{text}\n[next: {self._next}]")

    def _finish(self, values: Values) -> Reply:
        if left := self._left:
            raise ToolError(f"{left[0]} has not been read yet.")
        return Reply(values.text)

    @property
    def _left(self) -> list[str]:
        return [fact.path for fact in self.question.facts if fact.path not in self.seen]

    @property
    def _next(self) -> str:
        return f"read_file {self._left[0]}" if self._left else "finish, with all values"
