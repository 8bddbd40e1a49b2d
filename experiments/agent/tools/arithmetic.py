"""Arithmetic on exact fractions, bounded in length, depth and size of numbers; nothing is ever evaluated.

A grammar by hand, read from left to right by precedence climbing: an expression is text for it, never Python.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from experiments.agent.tools.outcome import Failure, ToolError

MAX_CHARACTERS: Final = 500
MAX_DEPTH: Final = 40
MAX_BITS: Final = 4_096
"""Of a numerator or a denominator, at every step."""
MAX_EXPONENT: Final = 1_000
_DIGITS: Final = 30
"""Digits behind the point that a square root which is no fraction is computed to."""
_TOKEN: Final = re.compile(
    r"\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?|\.\d+(?:[eE][+-]?\d{1,3})?)|(\*\*|//|[-+*/%^(),])|([a-z]+))",
    re.ASCII,
)
_PRECEDENCE: Final[Mapping[str, int]] = MappingProxyType({"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2})


def evaluated(expression: str) -> Fraction:
    """The exact value of an expression; a square root is exact to 30 digits behind the point.

    Knows + - * / // % ** (also ^), brackets, numbers with a point or an exponent, pi, e, and abs, round, floor,
    ceil, sqrt, min, max. Raises `ToolError` for anything else and for numbers beyond `MAX_BITS`.
    """
    if len(expression) > MAX_CHARACTERS:
        raise ToolError(
            f"An expression has at most {MAX_CHARACTERS} characters, not {len(expression):,}; calculate in steps.",
            Failure.LIMIT,
        )
    return _Reader(_tokens(expression), expression).whole()


def written(value: Fraction) -> str:
    """A whole number or a finite decimal exactly, anything longer to 12 digits with `≈` before it."""
    if value.denominator == 1 and abs(value.numerator) < 10**60:
        return str(value.numerator)
    for places in range(1, 13):
        scaled = value * 10**places
        if scaled.denominator == 1 and abs(scaled.numerator) < 10**60:
            digits = f"{abs(scaled.numerator):0{places + 1}d}"
            sign = "-" if scaled < 0 else ""
            return f"{sign}{digits[:-places]}.{digits[-places:]}"
    return "≈ " + _rounded(value)


def _rounded(value: Fraction) -> str:
    """Twelve significant digits, without a float on the way, which could overflow."""
    magnitude = abs(value)
    # Estimated from the lengths, then corrected by at most a step.
    exponent = len(str(magnitude.numerator)) - len(str(magnitude.denominator))
    if magnitude < Fraction(10) ** exponent:
        exponent -= 1
    digits = round(magnitude / Fraction(10) ** (exponent - 11))
    if digits >= 10**12:
        digits, exponent = round(Fraction(digits, 10)), exponent + 1
    text = str(digits)
    sign = "-" if value < 0 else ""
    if -6 <= exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{text}"
    if 0 <= exponent < 11:
        return f"{sign}{text[: exponent + 1]}.{text[exponent + 1 :]}"
    return f"{sign}{text[0]}.{text[1:]}e{exponent:+d}"


def _tokens(expression: str) -> list[str]:
    found: list[str] = []
    at = 0
    end = len(expression.rstrip())
    while at < end:
        match = _TOKEN.match(expression, at)
        if match is None:
            raise ToolError(
                f"Expected arithmetic, got {expression[at : at + 20].strip()!r} at character {at}; use numbers, "
                "+ - * / // % **, brackets, pi, e, abs, round, floor, ceil, sqrt, min and max."
            )
        found.append(match[0].strip())
        at = match.end()
    return found


class _Reader:
    def __init__(self, tokens: list[str], expression: str) -> None:
        self._tokens = tokens
        self._expression = expression
        self._at = 0
        self._depth = 0

    def whole(self) -> Fraction:
        value = self._expression_from(0)
        if self._at < len(self._tokens):
            raise self._wrong("an operator")
        return value

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, wanted: str) -> None:
        if self._peek() != wanted:
            raise self._wrong(repr(wanted))
        self._at += 1

    def _expression_from(self, least: int) -> Fraction:
        left = self._signed()
        while (precedence := _PRECEDENCE.get(self._peek(), -1)) > least:
            operator = self._peek()
            self._at += 1
            left = _bounded(_apply(operator, left, self._expression_from(precedence)))
        return left

    def _signed(self) -> Fraction:
        """A sign binds weaker than a power: -2 ** 2 is -4."""
        sign = 1
        while self._peek() in ("+", "-"):
            sign = -sign if self._peek() == "-" else sign
            self._at += 1
        return sign * self._power()

    def _power(self) -> Fraction:
        """To the right first: 2 ** 3 ** 2 is 512."""
        bases = [self._atom()]
        signs: list[int] = []
        while self._peek() in ("**", "^"):
            self._at += 1
            sign = 1
            while self._peek() in ("+", "-"):
                sign = -sign if self._peek() == "-" else sign
                self._at += 1
            signs.append(sign)
            bases.append(self._atom())
        value = bases.pop()
        while bases:
            value = _raised(bases.pop(), signs.pop() * value)
        return value

    def _atom(self) -> Fraction:
        part = self._peek()
        if not part:
            raise self._wrong("a number")
        self._at += 1
        if part[0].isdigit() or part[0] == ".":
            return _bounded(Fraction(part))
        if part == "(":
            return self._inside()[0]
        if part in _CONSTANTS:
            return _CONSTANTS[part]
        if part in _FUNCTIONS:
            self._take("(")
            values = self._inside(several=True)
            return _bounded(_called(part, values))
        self._at -= 1
        raise self._wrong("a number, pi, e, or one of " + ", ".join(_FUNCTIONS))

    def _inside(self, *, several: bool = False) -> list[Fraction]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ToolError(f"Brackets go at most {MAX_DEPTH} deep; calculate in steps.", Failure.LIMIT)
        values = [self._expression_from(0)]
        while several and self._peek() == ",":
            self._at += 1
            values.append(self._expression_from(0))
        self._take(")")
        self._depth -= 1
        return values

    def _wrong(self, wanted: str) -> ToolError:
        got = repr(self._peek()[:20]) if self._peek() else "the end"
        return ToolError(f"Expected {wanted} in the expression, got {got} (part {self._at + 1}); correct it.")


def _apply(operator: str, left: Fraction, right: Fraction) -> Fraction:
    if operator in ("/", "//", "%") and right == 0:
        raise ToolError("A number cannot be divided by zero; correct the expression.")
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case "//":
            return Fraction(left // right)
        case _:
            return left % right


def _raised(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent == Fraction(1, 2):
        return _square_root(base)
    if exponent.denominator != 1:
        raise ToolError("An exponent is a whole number, or 0.5; use sqrt or calculate it otherwise.")
    power = exponent.numerator
    if base == 0 and power < 0:
        raise ToolError("A number cannot be divided by zero; correct the expression.")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    # Looked at before it is computed: the result has about bits × power bits.
    if (abs(power) > MAX_EXPONENT and abs(base) not in (0, 1)) or (bits - 1) * abs(power) > MAX_BITS:
        raise _too_large()
    # A whole number of 0, 1 or -1 to a huge power needs its parity alone.
    return _bounded(base ** (power if abs(power) <= MAX_EXPONENT else 2 + power % 2))


def _square_root(value: Fraction) -> Fraction:
    if value < 0:
        raise ToolError("A negative number has no real square root; correct the expression.")
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if top * top == value.numerator and bottom * bottom == value.denominator:
        return Fraction(top, bottom)
    scale = 10**_DIGITS
    return Fraction(math.isqrt(value.numerator * scale * scale // value.denominator), scale)


def _called(name: str, values: list[Fraction]) -> Fraction:
    function, most = _FUNCTIONS[name]
    if len(values) > most:
        raise ToolError(f"{name} takes at most {most} number(s), not {len(values)}.")
    return function(values)


def _round(values: list[Fraction]) -> Fraction:
    places = values[1] if len(values) > 1 else Fraction(0)
    if places.denominator != 1 or not -30 <= places <= 30:
        raise ToolError("round takes a whole number of places from -30 to 30.")
    return Fraction(round(values[0], int(places)))


_FUNCTIONS: Final[Mapping[str, tuple[Callable[[list[Fraction]], Fraction], int]]] = MappingProxyType(
    {
        "abs": (lambda values: abs(values[0]), 1),
        "round": (_round, 2),
        "floor": (lambda values: Fraction(math.floor(values[0])), 1),
        "ceil": (lambda values: Fraction(math.ceil(values[0])), 1),
        "sqrt": (lambda values: _square_root(values[0]), 1),
        "min": (min, MAX_CHARACTERS),
        "max": (max, MAX_CHARACTERS),
    }
)
_CONSTANTS: Final[Mapping[str, Fraction]] = MappingProxyType(
    {
        "pi": Fraction("3.141592653589793238462643383280"),
        "e": Fraction("2.718281828459045235360287471353"),
    }
)


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise _too_large()
    return value


def _too_large() -> ToolError:
    return ToolError(
        f"A number has at most {MAX_BITS:,} bits and an exponent is at most {MAX_EXPONENT:,}, and this needs more.",
        Failure.LIMIT,
    )
