"""Grades of a turn with tools, by code: the calls that were made beside the calls that were needed."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Final

from pydantic import JsonValue

from experiments.agent.callform import CallForm
from experiments.workloads.tool_prompt_calls import CALCULATE, DEFAULTS, READ_FILE, ExpectedCall
from experiments.workloads.tool_prompts import ToolPrompt
from serving.assembler.record import Record


class MadeCall(Record):
    """A call that a model made."""

    name: str
    arguments: str
    """JSON text, as it came."""
    result: str | None = None
    """What the tool answered; None: nothing yet."""


class Message(Record):
    """One message of a model that called tools, or tried to."""

    form: CallForm
    calls: tuple[MadeCall, ...]
    """None at all where it could not be read."""


class Turn(Record):
    """What a model did about one prompt."""

    messages: tuple[Message, ...]
    """Those with calls, in order."""
    answer: str | None
    """Its last words; None where it never came to an end."""

    @property
    def calls(self) -> tuple[MadeCall, ...]:
        """Every call, in order."""
        return tuple(call for message in self.messages for call in message.calls)

    def read_natively(self) -> Turn:
        """The turn with a harness that knows the template's own form alone.

        There, JSON in the text is text: the message that holds it is the last one, and no answer to the question.
        """
        for place, message in enumerate(self.messages):
            if message.form is not CallForm.NATIVE:
                return Turn(messages=self.messages[:place], answer=None)
        return self


class TurnGrade(Record):
    """How good a turn was."""

    expected: int
    made: int
    found: int
    """Expected calls that were made, each counted once."""
    exact: bool
    """Exactly the expected calls were made, by name and arguments, and in order where one needs another's result."""
    together: bool | None
    """Whether one message held all expected calls; None where there are not several, or they need an order."""
    right_stop: bool
    """It answered as soon as every expected call had its result, and not before."""

    @property
    def wrong_calls(self) -> int:
        """Calls that nobody needed: of another tool, with other arguments, or once too often."""
        return self.made - self.found

    @property
    def succeeded(self) -> bool:
        """Whether nothing was wrong."""
        return self.exact and self.right_stop


def grade_turn(prompt: ToolPrompt, turn: Turn) -> TurnGrade:
    """Compare what was done with what was needed."""
    places = _places(prompt.calls, turn)
    found = [place for place in places if place is not None]
    whole = len(found) == len(prompt.calls)
    in_order = not prompt.ordered or all(a < b for a, b in pairwise(found))
    last = len(turn.messages) - 1
    return TurnGrade(
        expected=len(prompt.calls),
        made=len(turn.calls),
        found=len(found),
        exact=whole and len(found) == len(turn.calls) and in_order,
        together=None if prompt.ordered or len(prompt.calls) < 2 else whole and len(set(found)) == 1,
        right_stop=whole and _is_answer(turn.answer) and max(found, default=-1) == last,
    )


def same_call(expected: ExpectedCall, made: MadeCall) -> bool:
    """Whether a call is the expected one: its name, and its arguments as its tool understands them.

    250 and 250.0 are one number and "250" is none; the case of a city or a code does not count, as it does not for
    the tool; an expression may swap what is added or multiplied, and not be worked out beforehand; a program is
    judged by what it prints.
    """
    if made.name != expected.name:
        return False
    if expected.prints is not None:
        return (made.result or "").strip() == expected.prints
    given = _object(made.arguments)
    if given is None:
        return False
    given = {**DEFAULTS.get(made.name, {}), **given}
    if given.keys() != expected.arguments.keys():
        return False
    return all(
        _canonical(made.name, key, given[key]) == _canonical(made.name, key, value)
        for key, value in expected.arguments.items()
    )


def invented_numbers(prompt: ToolPrompt, turn: Turn) -> tuple[str, ...]:
    """Numbers of an answer that stand neither in the question nor in any call or result."""
    known = " ".join([prompt.text, *(f"{call.arguments} {call.result}" for call in turn.calls)])
    seen = set(_numbers(known))
    return tuple(number for number in _numbers(turn.answer or "") if number not in seen)


def _is_answer(text: str | None) -> bool:
    """Whether a turn ended in words: not in nothing, and not in the JSON of a call that no harness reads."""
    return text is not None and bool(text.strip()) and '"arguments"' not in text


def _places(expected: Sequence[ExpectedCall], turn: Turn) -> list[int | None]:
    """For every expected call the message that made it first; no call counts for two."""
    free = [(place, call) for place, message in enumerate(turn.messages) for call in message.calls]
    places: list[int | None] = []
    for wanted in expected:
        at = next((index for index, (_, call) in enumerate(free) if same_call(wanted, call)), None)
        places.append(None if at is None else free.pop(at)[0])
    return places


def _object(text: str) -> dict[str, JsonValue] | None:
    try:
        value = json.loads(text if text.strip() else "{}", parse_float=Decimal)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _canonical(tool: str, argument: str, value: JsonValue | Decimal) -> object:
    """Equal for values that the tool takes as the same, and of different types never."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        finite = Decimal(str(value))
        return Fraction(finite) if finite.is_finite() else str(value)
    if not isinstance(value, str):
        return (type(value).__name__, json.dumps(value, sort_keys=True, default=str))
    if tool == CALCULATE and argument == "expression":
        return _expression(value)
    if tool == READ_FILE:
        return value.removeprefix("./")
    return " ".join(value.split()).casefold()


_COMMUTE: Final = {ast.Add: "+", ast.Mult: "*"}
_LONGEST: Final = 500


def _expression(text: str) -> object:
    """The shape of an arithmetic expression: brackets, spaces and the order of sums and products do not count."""
    plain = text.replace("×", "*").replace("÷", "/").replace("−", "-").replace("^", "**")
    try:
        return _shape(ast.parse(plain.strip()[:_LONGEST], mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def _shape(node: ast.expr) -> object:
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    ):
        return ("number", Fraction(Decimal(repr(node.value))))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _shape(node.operand)
        if isinstance(inner, tuple) and inner[0] == "number":
            return ("number", -inner[1])
        return ("-", inner)
    if isinstance(node, ast.BinOp):
        sign = _COMMUTE.get(type(node.op))
        if sign is None:
            return (type(node.op).__name__, _shape(node.left), _shape(node.right))
        return (sign, *sorted(map(_shape, _parts(node, type(node.op))), key=repr))
    raise ValueError("no arithmetic")


def _parts(node: ast.expr, operation: type[ast.operator]) -> Iterator[ast.expr]:
    """What a chain of one operation joins."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, operation):
        yield from _parts(node.left, operation)
        yield from _parts(node.right, operation)
    else:
        yield node


def _numbers(text: str) -> Iterator[str]:
    for found in re.findall(r"\d[\d,]*(?:\.\d+)?", text):
        yield found.replace(",", "").rstrip("0").rstrip(".") if "." in found else found.replace(",", "")
