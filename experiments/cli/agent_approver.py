"""A person at the terminal, asked about each call with consequences."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console

from experiments.agent.approval import Approval, ApprovalRequest
from experiments.cli.untrusted import plain, untrusted


class TerminalApprover:
    """Shows the exact call and takes the word `yes` alone; without a keyboard there is no decision."""

    def __init__(self, console: Console, *, interactive: bool) -> None:
        self._console = console
        self._interactive = interactive

    def decide(self, request: ApprovalRequest) -> Approval | None:
        """Ask; an empty line, the end of the input, and anything but `yes` are a no."""
        name = request.call_sha256[:12]
        if not self._interactive:
            self._console.print(f"[yellow]! {plain(request.tool)} needs a yes at a terminal ({name})[/]")
            return None
        self._console.print(untrusted(f"\n{request.tool}({request.arguments})\n", "bold"))
        if request.effect:
            self._console.print(untrusted(f"{request.effect}\n", "yellow"))
        try:
            said = input(f"Run this one call ({name})? Type yes: ")
        except EOFError:
            said = ""
        return Approval(
            call_sha256=request.call_sha256,
            approved=said.strip() == "yes",
            by="terminal",
            at=datetime.now(UTC),
        )
