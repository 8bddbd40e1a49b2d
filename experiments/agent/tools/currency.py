"""Exchange rates of the simulated world, out of a table, in decimal arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field

from experiments.agent.tools.definitions import Arguments
from experiments.agent.tools.outcome import Failure, Reply, ToolError
from experiments.agent.tools.tool import ALL_STAGES, Tool, tool

MAX_AMOUNT: Final = 1e12
PER_EURO: Final[Mapping[str, Decimal]] = MappingProxyType(
    {
        "EUR": Decimal("1"),
        "AUD": Decimal("1.66"),
        "BRL": Decimal("6.05"),
        "CAD": Decimal("1.52"),
        "CHF": Decimal("0.94"),
        "CNY": Decimal("7.84"),
        "GBP": Decimal("0.86"),
        "INR": Decimal("92.40"),
        "JPY": Decimal("163.50"),
        "USD": Decimal("1.08"),
    }
)
"""Made up, and the same in every run."""
_WITHOUT_CENTS: Final = frozenset({"JPY"})


class Exchange(Arguments):
    """An amount, and the three-letter codes of what it is in and what it is wanted in."""

    amount: Annotated[float, Field(ge=-MAX_AMOUNT, le=MAX_AMOUNT, allow_inf_nan=False)]
    source: str
    target: str


def currency_tools() -> tuple[Tool, ...]:
    """`convert_currency`: rounded to the target's smallest unit, half to even."""

    def convert(asked: Exchange) -> Reply:
        source, target = _code(asked.source), _code(asked.target)
        # The shortest decimal that names the float is the number that the model wrote.
        amount = Decimal(repr(asked.amount))
        unit = Decimal(1) if target in _WITHOUT_CENTS else Decimal("0.01")
        exact = amount * PER_EURO[target] / PER_EURO[source]
        got = exact.quantize(unit, rounding=ROUND_HALF_EVEN)
        return Reply(
            f"{amount.normalize():f} {source} = {got} {target}",
            {"source": source, "target": target, "amount": asked.amount, "converted": str(got)},
        )

    return (
        tool(
            "convert_currency",
            "Convert an amount between currencies.",
            Exchange,
            convert,
            failures=(Failure.NOT_FOUND,),
            stages=ALL_STAGES,
        ),
    )


def _code(asked: str) -> str:
    code = asked.strip().upper()
    if code not in PER_EURO:
        raise ToolError(
            f"There is no currency {asked[:20]!r}; the currencies are {', '.join(PER_EURO)}.",
            Failure.NOT_FOUND,
        )
    return code
