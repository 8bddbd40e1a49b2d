"""The tools that tell and change the working directory inside the root."""

from __future__ import annotations

from experiments.agent.tools.definitions import Arguments, OnePath
from experiments.agent.tools.outcome import Failure, Reply
from experiments.agent.tools.tool import ALL_STAGES, Postcondition, Tool, tool
from experiments.agent.tools.workspace import Workspace


class Nothing(Arguments):
    """No arguments."""


def directory_tools(workspace: Workspace) -> tuple[Tool, ...]:
    """`current_directory` and `change_directory`; the file tools of the same workspace follow it."""

    def tell(_: Nothing) -> Reply:
        return Reply(workspace.cwd, {"cwd": workspace.cwd})

    def change(to: OnePath) -> Reply:
        return Reply(f"The working directory is {workspace.change(to.path)}", {"cwd": workspace.cwd})

    def exists(_: OnePath) -> bool:
        return workspace.folder().entry("").path == ""

    return (
        tool("current_directory", "Tell the working directory.", Nothing, tell, stages=ALL_STAGES),
        tool(
            "change_directory",
            "Change the working directory.",
            OnePath,
            change,
            effect="The file tools take paths relative to it.",
            idempotent=False,
            failures=(Failure.REFUSED, Failure.NOT_FOUND, Failure.LIMIT),
            stages=ALL_STAGES,
            ensures=Postcondition("the working directory is a folder inside the root", exists),
            alone=workspace.changing,
        ),
    )
