"""One trajectory replayed call by call under one arm: what a call carries to the next is kept here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from experiments.framework import InfrastructureError
from experiments.framework.measured import rebuilt
from experiments.framework.served_model import ServedModel
from experiments.prefix_cache.sabotage import faults_of, time_of
from serving.assembler import (
    BarState,
    Carry,
    ContextPolicy,
    HandOff,
    RequestContext,
    Trajectory,
)
from serving.assembler.compaction import extractive, finish
from serving.assembler.prepare import estimated_tokens
from serving.call import Caller, DecodeOptions, MeasuredCall
from serving.client import Surface
from serving.errors import LabError


@dataclass(frozen=True)
class Way:
    """How an arm builds and sends its requests: its factors, read once."""

    policy: ContextPolicy
    faults: tuple[str, ...]
    rebuild: bool
    window: int | None
    """Tokens that the arm plans for; None: what the server serves."""
    surface: Surface
    max_tokens: int

    @classmethod
    def of(cls, factors: Mapping[str, JsonValue]) -> Way:
        """Read the factors of an arm; `LabError` where one has another type than the study gives it."""
        faults, max_tokens = factors["fault.applied"], factors["decode.max_tokens"]
        window = factors["harness.window"]
        if not isinstance(max_tokens, int) or not isinstance(faults, list):
            raise LabError("decode.max_tokens is a number and fault.applied a list of names.")
        if window is not None and not isinstance(window, int):
            raise LabError(f"harness.window is a number of tokens or null, not {window!r}.")
        return cls(
            policy=ContextPolicy.model_validate(
                {
                    path.removeprefix("policy."): value
                    for path, value in factors.items()
                    if path.startswith("policy.")
                }
            ),
            faults=tuple(str(name) for name in faults),
            rebuild=factors["harness.rebuild"] is True,
            window=window,
            surface=Surface.TOKEN_IN if factors["render.surface"] == "token-in" else Surface.CHAT,
            max_tokens=max_tokens,
        )


class Replay:
    """A trajectory on its way under one arm; `call` makes the next call of it."""

    def __init__(
        self, trajectory: Trajectory, way: Way, target: ServedModel, *, seed: int, salt: str
    ) -> None:
        """A prediction of its own for every replay: the salt separates it from all others."""
        self._trajectory = (
            Trajectory.model_validate_json(trajectory.model_dump_json()) if way.rebuild else trajectory
        )
        self._way = way
        self._target = target
        self._seed = seed
        self._salt = salt
        self._carry = Carry()
        # The pool holds a whole trial (the study checks it), so nothing of this salt is ever evicted.
        self._caller = Caller(
            target.client,
            target.folder,
            block_size=target.block_size,
            surface=way.surface,
            tokenizer=target.tokenizer,
        )
        self.calls: list[MeasuredCall] = []
        self.compactions = 0

    def call(self) -> MeasuredCall:
        """Make the next call and keep what it fixed for the ones after it.

        Raises `LabError` for a packet that does not fit, `InfrastructureError` for a call that failed, and
        `InequalityError` where the server reads or reuses anything else than rendered and predicted.
        """
        number, way, target = len(self.calls), self._way, self._target
        request = self._trajectory.request(
            number,
            context=RequestContext(tenant="lab", actor="study", now=time_of(number)),
            window=way.window or target.max_model_len,
            max_output=way.max_tokens,
            carry=self._carry,
            bar=BarState(now=time_of(number)),
            run_id=self._salt,
            surface=f"{target.folder.name}/{way.surface.value}",
        )
        if way.rebuild:
            request = rebuilt(request)
        faults = faults_of(way.faults, request, self._seed)
        decode = DecodeOptions(max_tokens=way.max_tokens)
        call = self._caller.call(request, way.policy, decode, salt=self._salt, faults=faults)
        if isinstance(call, HandOff):
            raise LabError(
                f"Call {number} does not fit: {call.needed} tokens of {call.budget}. Serve a longer context."
            )
        if call.exchange.error is not None:
            raise InfrastructureError(call.exchange.error.sentence)
        self._carry = call.packet.carry
        if call.packet.compaction is not None:
            # A model would write this summary; here rules copy sentences, so that every run has the same bytes.
            plan = call.packet.compaction
            result = finish(plan, [extractive(task) for task in plan.tasks], estimated_tokens)
            self._carry = self._carry.with_compaction(result)
            self.compactions = len(self._carry.compactions)
        self.calls.append(call)
        return call
