"""One tool: its contract, and the function that answers a call of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pydantic import ValidationError

from experiments.agent.tools.definitions import Arguments, tool_spec
from experiments.agent.tools.outcome import Failure, Reply, ToolError, ToolOutcome
from serving.assembler import Authority, Stage, ToolContract

A = TypeVar("A", bound=Arguments)

MAX_OUTCOME_CHARACTERS: Final = 8_000
MAX_ARGUMENT_CHARACTERS: Final = 2_000_000
"""Of the JSON text of one call; a call of more is not even parsed."""
ALL_STAGES: Final = frozenset({Stage.DISCOVERY, Stage.ANALYSIS, Stage.ACTION})


@dataclass(frozen=True, slots=True)
class Postcondition(Generic[A]):
    """What holds after a call that was done; checked by code, before anybody else can act."""

    says: str
    holds: Callable[[A], bool]


@dataclass(frozen=True, slots=True)
class Tool:
    """A contract and what stands behind it."""

    contract: ToolContract
    answer: Callable[[str, threading.Event | None], Reply]
    """From the JSON text of the arguments to the reply; raises `ToolError` alone."""
    postcondition: str = ""

    @property
    def name(self) -> str:
        return self.contract.spec.name


def tool(
    name: str,
    description: str,
    arguments: type[A],
    run: Callable[[A], Reply],
    *,
    authority: Authority = Authority.READ,
    effect: str = "",
    preconditions: tuple[str, ...] = (),
    idempotent: bool = True,
    failures: tuple[Failure, ...] = (),
    stages: frozenset[Stage] | None = None,
    ensures: Postcondition[A] | None = None,
    alone: threading.Lock | None = None,
) -> Tool:
    """A tool from a function of its parsed arguments.

    `alone`: held while it runs and its postcondition is checked, by all tools that change one state.
    """

    def with_cancel(parsed: A, cancel: threading.Event | None) -> Reply:
        return run(parsed)

    contract = contract_of(
        name,
        description,
        arguments,
        authority=authority,
        effect=effect,
        preconditions=preconditions,
        idempotent=idempotent,
        failures=failures,
        stages=stages,
    )
    return cancellable(contract, arguments, with_cancel, ensures=ensures, alone=alone)


def cancellable(
    contract: ToolContract,
    arguments: type[A],
    run: Callable[[A, threading.Event | None], Reply],
    *,
    ensures: Postcondition[A] | None = None,
    alone: threading.Lock | None = None,
) -> Tool:
    """A tool whose function ends early, with a `ToolError`, when its event is set."""
    name = contract.spec.name

    def answer(text: str, cancel: threading.Event | None) -> Reply:
        parsed = parsed_arguments(name, arguments, text)
        with nullcontext() if alone is None else alone:
            reply = run(parsed, cancel)
            if ensures is not None and not ensures.holds(parsed):
                raise ToolError(
                    f"Expected after {name} that {ensures.says}, and it does not hold; look before you go on.",
                    Failure.POSTCONDITION,
                )
        return reply

    return Tool(contract, answer, "" if ensures is None else ensures.says)


def contract_of(
    name: str,
    description: str,
    arguments: type[Arguments],
    *,
    authority: Authority = Authority.READ,
    effect: str = "",
    preconditions: tuple[str, ...] = (),
    idempotent: bool = True,
    failures: tuple[Failure, ...] = (),
    stages: frozenset[Stage] | None = None,
) -> ToolContract:
    """The contract of one tool; wrong arguments are a failure of every tool."""
    return ToolContract(
        spec=tool_spec(name, description, arguments),
        authority=authority,
        effect=effect,
        preconditions=preconditions,
        idempotent=idempotent,
        failures=(Failure.WRONG_ARGUMENTS, *failures),
        stages=stages,
    )


def parsed_arguments(name: str, wanted: type[A], arguments: str) -> A:
    """Arguments as the model wrote them, or a `ToolError` that says what the tool takes."""
    if len(arguments) > MAX_ARGUMENT_CHARACTERS:
        raise ToolError(
            f"The arguments of one call have at most {MAX_ARGUMENT_CHARACTERS:,} characters, "
            f"not {len(arguments):,}; pass less.",
            Failure.LIMIT,
        )
    try:
        # Several servers write a call without arguments as an empty text.
        return wanted.model_validate_json(arguments if arguments.strip() else "{}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = f"{first['loc'][0]!r}: " if first["loc"] else ""
        takes = ", ".join(f"{key}: {kind}" for key, kind in _signature(wanted)) or "no arguments"
        raise ToolError(
            f"Wrong arguments for {name}: {where}{first['msg']}. It takes {takes}.", Failure.WRONG_ARGUMENTS
        ) from error
    except ValueError as error:
        raise ToolError(
            f"Wrong arguments for {name}: they are no Unicode text.", Failure.WRONG_ARGUMENTS
        ) from error


def failed(error: ToolError) -> ToolOutcome:
    """The observation of a call that was not done; its sentence may repeat what the model wrote."""
    text = cut(shown(str(error)), MAX_OUTCOME_CHARACTERS)
    return ToolOutcome(text, ok=False, failure=error.failure, verified=error.verified)


def shown(text: str) -> str:
    """A text that UTF-8 can carry: a model may write half a surrogate pair, and an error would repeat it."""
    return text.encode("utf-8", "backslashreplace").decode()


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, and how many were left out."""
    return text if len(text) <= limit else f"{text[:limit]} […{len(text) - limit:,} more characters]"


def _signature(wanted: type[Arguments]) -> Iterator[tuple[str, str]]:
    for key, details in wanted.model_json_schema().get("properties", {}).items():
        kind = details["type"]
        yield key, kind if wanted.model_fields[key].is_required() else f"{kind} (optional)"
