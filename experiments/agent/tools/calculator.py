"""The calculator: `arithmetic.py` as a tool."""

from __future__ import annotations

from experiments.agent.tools.arithmetic import evaluated, written
from experiments.agent.tools.definitions import Arguments
from experiments.agent.tools.outcome import Failure, Reply
from experiments.agent.tools.tool import ALL_STAGES, Tool, tool


class Expression(Arguments):
    """Arithmetic, as `evaluated` knows it."""

    expression: str


def calculator_tools() -> tuple[Tool, ...]:
    """`calculate`."""

    def calculate(asked: Expression) -> Reply:
        text = written(evaluated(asked.expression))
        return Reply(text, {"value": text.removeprefix("≈ "), "exact": not text.startswith("≈")})

    return (
        tool(
            "calculate",
            "Calculate an arithmetic expression.",
            Expression,
            calculate,
            failures=(Failure.REFUSED, Failure.LIMIT),
            stages=ALL_STAGES,
        ),
    )
