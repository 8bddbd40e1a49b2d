"""Chat templates, compiled and run as transformers runs them, with or without character origins.

The environment is the one of `transformers.utils.chat_template_utils` (5.19), which vLLM calls: immutable
sandbox, trimmed blocks, `break`/`continue`, `tojson` without HTML escaping, `{% generation %}` blocks.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from types import BuiltinFunctionType
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from serving.chat.traced import adopt, concat, join, leaves_in
from serving.chat.traced_json import to_json
from serving.errors import UsageError


class TemplateRefusesError(UsageError):
    """A template that raises on a conversation, in its own words, or that trips over it: a finding about templates."""


class ChatTemplate:
    """One template, compiled once for text and once for text that carries origins."""

    def __init__(self, source: str) -> None:
        """Raises: UsageError when `source` is not a valid template."""
        self.source = source
        try:
            self._plain = _environment(_Sandbox, _tojson).from_string(source)
            self._traced = _environment(_TracingEnvironment, _traced_tojson).from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise UsageError(
                f"The chat template does not compile: {error.message} (line {error.lineno}). "
                "Check the template file, or pass another one."
            ) from error

    def render(self, variables: Mapping[str, object]) -> str:
        """The text for `variables` (messages, tools, add_generation_prompt, …).

        Raises: TemplateRefusesError when the template itself refuses the conversation (its own words are kept).
        """
        return _run(self._plain, variables)

    def render_traced(self, variables: Mapping[str, object]) -> str:
        """The same text, whose characters know their origin where `variables` hold `Traced` strings."""
        return _run(self._traced, variables)

    def names(self) -> frozenset[str]:
        """The variables that the template reads and does not set itself."""
        return frozenset(jinja2.meta.find_undeclared_variables(self.syntax_tree()))

    def syntax_tree(self) -> nodes.Template:
        """The parsed template."""
        return self._plain.environment.parse(self.source)


def _run(template: jinja2.Template, variables: Mapping[str, object]) -> str:
    try:
        return template.render(variables)
    except jinja2.TemplateError as error:
        reason = (error.message or type(error).__name__).rstrip(".")
        raise TemplateRefusesError(
            f"The chat template refuses this conversation: {reason}. "
            "Change the messages, or use a model whose template accepts them."
        ) from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        # A template that trips over its input ("can only concatenate str") raises Python's own errors.
        raise TemplateRefusesError(
            f"The chat template fails on this conversation: {type(error).__name__}: {error}. "
            "Change the messages, or use a model whose template accepts them."
        ) from error


def _tojson(
    x: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _traced_tojson(
    x: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return to_json(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment(kind: type[_Sandbox], tojson: Callable[..., str]) -> ImmutableSandboxedEnvironment:
    environment = kind(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    # Local time, as the server does; a template that calls it is not reproducible (the probe says so).
    return datetime.now().strftime(format)


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}`: marks training text, prints its body unchanged."""

    tags = {"generation"}  # noqa: RUF012 - the attribute's type is jinja2's

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Macro) -> str:
        text: str = caller()
        return text


class _TracingCode(CodeGenerator):
    """Code whose `~` keeps origins; jinja2's own joins the parts with a plain `"".join`."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - jinja2's name
        self.write("environment.concat(map(environment.finalize, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")


_NAMES_OF_DICT = frozenset(dir(dict))


class _Sandbox(ImmutableSandboxedEnvironment):
    """transformers' sandbox, with the same answers found faster, for templates do little but read attributes.

    A mapping's entry is read without an exception that says that a `dict` has no such attribute (names that
    it has are left to jinja2). Whether an attribute is safe depends on the type and the name alone, so it is
    asked once.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._safe: dict[tuple[type, str], bool] = {}

    def getattr(self, obj: object, attribute: str) -> object:
        if isinstance(obj, dict) and attribute not in _NAMES_OF_DICT:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        asked = (type(obj), attr)
        if (safe := self._safe.get(asked)) is None:
            safe = self._safe[asked] = super().is_safe_attribute(obj, attr, value)
        return safe


class _TracingEnvironment(_Sandbox):
    """The same environment; what an operation unaware of origins returns adopts its inputs' origin."""

    code_generator_class = _TracingCode
    concat = staticmethod(concat)
    intercepted_binops = frozenset({"%", "*"})

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=_printed, **options)
        for name, function in self.filters.items():
            self.filters[name] = _adopting(function)
        self.filters["join"] = _joining(self.filters["join"])

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        return _adopted(super().call_binop(context, operator, left, right), (left, right))

    def call(__self, __context: Context, __obj: object, *args: object, **kwargs: object) -> object:  # noqa: N805
        owner = getattr(__obj, "__self__", None)
        if isinstance(__obj, BuiltinFunctionType) and __obj.__name__ == "join" and type(owner) is str:
            return join(owner, list(args[0]))  # type: ignore[call-overload]
        result = super().call(__context, __obj, *args, **kwargs)
        # Macros ran through this environment, and containers hand out what was put into them: a plain string
        # from either is the template's own text. What is left are methods of strings, and `format`.
        if isinstance(__obj, Macro) or isinstance(owner, dict | list | jinja2.ext.Extension):
            return result
        # Inside loops jinja2 passes the surrounding variables along, which the function does not read.
        given = [value for name, value in kwargs.items() if name not in ("_loop_vars", "_block_vars")]
        return _adopted(result, (owner, args, given))


def _printed(value: object) -> str:
    # A list or mapping printed as it is comes out in Python's notation; its text is from the leaves inside.
    return value if isinstance(value, str) else adopt(str(value), value)


def _adopted(result: object, sources: object) -> object:
    return adopt(result, sources) if type(result) is str else result


def _adopting(function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)
    def wrapped(*args: object, **kwargs: object) -> object:
        return _adopted(function(*args, **kwargs), (args, kwargs))

    return wrapped


def _joining(function: Callable[..., object]) -> Callable[..., object]:
    # jinja2 passes the evaluation context first (functools.wraps keeps the mark that asks for it).
    @functools.wraps(function)
    def wrapped(evaluation: object, value: object, d: str = "", attribute: str | int | None = None) -> object:
        items = list(value)  # type: ignore[call-overload]
        if attribute is None and leaves_in([d, *items]) and all(isinstance(item, str) for item in items):
            return join(d, items)
        return function(evaluation, items, d, attribute)

    return wrapped
