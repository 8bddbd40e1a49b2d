from __future__ import annotations

import json
import threading

import pytest

from experiments.agent.tools import Failure, Toolbox, ToolOutcome
from experiments.agent.tools.interpreter import interpreter_tools
from experiments.agent.tools.sandbox import Ended, Limits, SandboxFailedError, SandboxResult


class ScriptedSandbox:
    """Answers with one result, whatever the program."""

    def __init__(self, result: SandboxResult | None) -> None:
        self.limits = Limits()
        self._result = result

    def run(self, program: str, cancel: threading.Event | None = None) -> SandboxResult:
        if self._result is None:
            raise SandboxFailedError("unshare: Operation not permitted")
        return self._result


def observed(result: SandboxResult | None, code: str = "pass") -> ToolOutcome:
    tools = Toolbox(interpreter_tools(ScriptedSandbox(result)))
    return tools.run("run_python", json.dumps({"code": code}))


def ended(how: Ended, status: int | None = None, stdout: str = "", stderr: str = "") -> SandboxResult:
    return SandboxResult(how, status, None, stdout, stderr)


def test_what_a_program_printed_is_the_observation() -> None:
    outcome = observed(ended(Ended.EXITED, 0, "4\n"))
    assert (outcome.ok, outcome.text) == (True, "4")
    assert outcome.verified == {"ended": "exited", "exit_status": 0}
    assert observed(ended(Ended.EXITED, 0)).text == "[the program printed nothing]"


def test_an_error_of_the_program_is_told_with_its_status() -> None:
    outcome = observed(ended(Ended.EXITED, 1, "half\n", "Traceback\nValueError: no\n"))
    assert outcome.failure is Failure.PROGRAM
    assert outcome.text == "half\n[stderr]\nTraceback\nValueError: no\n[exit status 1]"


@pytest.mark.parametrize("how", [how for how in Ended if how is not Ended.EXITED])
def test_every_end_by_force_is_a_failure_that_says_why(how: Ended) -> None:
    outcome = observed(ended(how, stdout="so far"))
    assert not outcome.ok and outcome.text.startswith("so far\n[ended") and outcome.failure is not None
    assert outcome.verified == {"ended": how.value, "exit_status": None}


def test_a_long_output_keeps_its_beginning_and_its_end() -> None:
    outcome = observed(ended(Ended.EXITED, 1, "a" * 60_000, "b" * 60_000 + "the reason"))
    assert len(outcome.text) <= 8_200 and "the reason" in outcome.text and "left out" in outcome.text


def test_a_run_that_could_not_be_isolated_is_an_outcome_and_no_program_ran() -> None:
    outcome = observed(None)
    assert outcome.failure is Failure.ISOLATION and "nothing ran" in outcome.text


def test_a_program_beyond_a_size_is_refused() -> None:
    assert observed(ended(Ended.EXITED, 0), "x" * 100_001).failure is Failure.LIMIT
