from __future__ import annotations

import ast
import operator
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from experiments.agent.tools.arithmetic import MAX_BITS, MAX_CHARACTERS, evaluated, written
from experiments.agent.tools.outcome import ToolError
from tests.support.examples import INVARIANT

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def by_python(node: ast.expr) -> Fraction:
    """The same value by Python's own parser and its rules of precedence."""
    if isinstance(node, ast.Constant):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](by_python(node.operand))
    assert isinstance(node, ast.BinOp)
    return Fraction(_OPERATORS[type(node.op)](by_python(node.left), by_python(node.right)))


expressions = st.recursive(
    st.integers(0, 99).map(str) | st.decimals(0, 9, places=2).map(str),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", " ** 2 - ", "*-"]), inner).map(
            "".join
        )
        | inner.map("({})".format)
        | inner.map("-{}".format)
        | inner.map("({})**3".format)
    ),
    max_leaves=12,
)


@settings(INVARIANT)
@given(expressions)
def test_python_gives_the_same_value(expression: str) -> None:
    try:
        expected = by_python(ast.parse(expression, mode="eval").body)
    except ZeroDivisionError:
        with pytest.raises(ToolError, match="divided by zero"):
            evaluated(expression)
        return
    assume(len(expression) <= MAX_CHARACTERS and max(abs(expected.numerator), expected.denominator) < 10**300)
    try:
        value = evaluated(expression)
    except ToolError as error:
        # A number on the way may be too large although the last one is not: 0 * (99**9)**9**3.
        assert "bits" in str(error) or "whole number, or 0.5" in str(error)
        return
    assert value == expected


@settings(INVARIANT)
@given(st.fractions())
def test_a_value_is_written_exactly_or_says_that_it_is_not(value: Fraction) -> None:
    text = written(value)
    if text.startswith("≈ "):
        assert abs(Fraction(text[2:]) - value) <= abs(value) * Fraction(1, 10**11)
    else:
        assert Fraction(text) == value


@settings(INVARIANT)
@given(st.text(alphabet="0123456789.eE+-*/%^(), absqrtminfloceud\n_'\"[]=;:", max_size=60))
def test_any_text_has_a_bounded_value_or_an_error_in_words(text: str) -> None:
    try:
        value = evaluated(text)
    except ToolError as error:
        assert str(error)
        return
    assert max(value.numerator.bit_length(), value.denominator.bit_length()) <= MAX_BITS
    written(value)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0.1 + 0.2", "0.3"),
        ("-2 ** 2", "-4"),
        ("2 ** 3 ** 2", "512"),
        ("2 ^ 10", "1024"),
        ("7 // -2", "-4"),
        ("-7 % 3", "2"),
        ("1 / 3", "≈ 0.333333333333"),
        ("2 / 3 * 3", "2"),
        ("1e3 + 1.5e-2", "1000.015"),
        ("sqrt(2)", "≈ 1.41421356237"),
        ("sqrt(9/4)", "1.5"),
        ("2 ** 0.5", "≈ 1.41421356237"),
        ("2 ** -2", "0.25"),
        ("round(2.675, 2)", "2.68"),
        ("max(1, 2, 3) + min(4, 5)", "7"),
        ("abs(-3) + floor(2.9) + ceil(2.1)", "8"),
        ("pi", "≈ 3.14159265359"),
        ("(-1) ** 1000000001", "-1"),
        ("0 * 5 - 0", "0"),
        ("1 / 7 / 10 ** 30", "≈ 1.42857142857e-31"),
        ("2 ** 300", "≈ 2.03703597633e+90"),
    ],
)
def test_known_values(expression: str, expected: str) -> None:
    assert written(evaluated(expression)) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "()",
        "1 +",
        "1 2",
        "9 ** 9 ** 9",
        "2 ** 100000",
        "(2 ** 1000) ** 1000",
        "10 ** 999 * 10 ** 999 * 10 ** 999",
        "1e999 * 1e999",
        "1 / 0",
        "1 % 0",
        "0 ** -1",
        "sqrt(-1)",
        "(-8) ** (1/3)",
        "(" * 45 + "1" + ")" * 45,
        "1" * 501,
        "round(1, 99)",
        "sqrt()",
        "sqrt(1, 2)",
        "__import__('os')",
        "a",
        "x = 1",
        "1 if 1 else 2",
        "[1]",
        "'a' * 10",
        "0x10",
        "1_000",
        "１＋１",
        "1 << 4000",
        "~1",
        "max",
    ],
)
def test_what_is_no_bounded_arithmetic_is_refused_in_words(expression: str) -> None:
    with pytest.raises(ToolError, match=r"; |\."):
        evaluated(expression)
