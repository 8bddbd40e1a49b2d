"""The cells of a latency study as arms: how requests come, how long they are, how much of them is cached."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Final

from pydantic import JsonValue

from experiments.framework import Arm
from experiments.latency.workload import Shape
from serving.errors import LabError

CEILINGS: Final = "ceilings"
AGAIN: Final = "again"
"""The null arm: the first cell once more."""
USUAL: Final = Shape(prompt_tokens=256, output_tokens=16)
"""The lengths of a load that says nothing else."""


class Load(StrEnum):
    """How requests come."""

    CLOSED = "closed"
    """A number of clients, each waiting for its answer before it asks again."""
    POISSON = "poisson"
    """At random times of a given rate, whether or not the server keeps up."""
    NONE = "none"
    """No request: the machine's ceilings are measured while the engine idles."""


def closed(concurrency: int, shape: Shape) -> Arm:
    """`concurrency` clients in a closed loop."""
    factors: dict[str, JsonValue] = {"load.kind": Load.CLOSED.value, "load.concurrency": concurrency}
    words = "one client" if concurrency == 1 else f"{concurrency} clients"
    return Arm(
        name=f"c{concurrency}-{_name(shape)}",
        title=f"{words.capitalize()}, {_words(shape)}",
        why=f"{words.capitalize()}, each asking again as soon as it is answered: {_words(shape)}.",
        factors={**factors, **_shape(shape)},
    )


def poisson(rate_per_s: float, shape: Shape) -> Arm:
    """Arrivals at random, `rate_per_s` on average."""
    name = format(Decimal(repr(rate_per_s)), "f").removesuffix(".0").replace(".", "-")
    return Arm(
        name=f"r{name}-{_name(shape)}",
        title=f"{rate_per_s:g} requests/s, {_words(shape)}",
        why=f"Requests come at random times, {rate_per_s:g} a second on average, whether or not the server keeps "
        f"up: {_words(shape)}.",
        factors={"load.kind": Load.POISSON.value, "load.rate_per_s": rate_per_s, **_shape(shape)},
    )


def at_url(arm: Arm, url: str, number: int) -> Arm:
    """The same cell at another server."""
    return arm.model_copy(
        update={
            "name": f"s{number}-{arm.name}"[:40].rstrip("-"),
            "title": f"{arm.title}, at {url}",
            "factors": {**arm.factors, "engine.url": url},
        }
    )


def ceilings() -> Arm:
    """What this machine can do at best."""
    return Arm(
        name=CEILINGS,
        title="The machine's ceilings",
        why="Memory bandwidth and matrix rate of this machine, measured between the loads while the engine idles: "
        "what every prefill and decode is held against.",
        factors={"load.kind": Load.NONE.value},
    )


def again(first: Arm) -> Arm:
    """The first cell with another cache salt and all else alike, its prompts too; without salts, new prompts."""
    return Arm(
        name=AGAIN,
        title=f"Again: {first.title}",
        why="The first cell once more, with a cache salt of its own. Any difference to it is the noise of the "
        "measurement.",
        factors={**first.factors, "harness.rebuild": True},
    )


def shape_of(factors: dict[str, JsonValue]) -> Shape:
    """The lengths in a trial's factors."""
    return Shape.model_validate({name: factors[f"load.{name}"] for name in Shape.model_fields})


def clients_of(factors: dict[str, JsonValue]) -> int | None:
    """The clients of a closed loop; None where requests come at a rate."""
    return None if factors["load.kind"] == Load.POISSON else int(number(factors, "load.concurrency"))


def number(factors: dict[str, JsonValue], path: str) -> float:
    """A factor that has to be a number."""
    value = factors[path]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LabError(f"Expected a number in {path}, got {value!r}.")
    return value


def base_load() -> dict[str, JsonValue]:
    """Every load factor with its usual value."""
    return {
        "load.kind": Load.CLOSED.value,
        "load.concurrency": 1,
        "load.rate_per_s": 0.0,
        "harness.rebuild": False,
        **_shape(USUAL),
    }


def _shape(shape: Shape) -> dict[str, JsonValue]:
    return {f"load.{name}": value for name, value in shape.model_dump(mode="json").items()}


def _name(shape: Shape) -> str:
    talk = f"-t{shape.turns}" if shape.turns > 1 else ""
    return f"p{shape.prompt_tokens}-o{shape.output_tokens}-h{shape.hit_percent}{talk}"


def _words(shape: Shape) -> str:
    shared = f", {shape.hit_percent} % of them shared" if shape.hit_percent else ""
    talk = f", {shape.turns} turns" if shape.turns > 1 else ""
    return f"{shape.prompt_tokens} prompt tokens{shared}, {shape.output_tokens} output tokens{talk}"
