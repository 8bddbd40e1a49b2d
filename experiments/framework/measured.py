"""Between factors and records on one side and `serving/call.py` on the other: how a call is asked, what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TypeVar

from pydantic import JsonValue, ValidationError

from experiments.framework.failures import InfrastructureError, failed_by_machinery
from experiments.framework.trials import BreakExcerpt, CallRecord, TrialRecord, TrialSpec
from serving.assembler import AssemblyRequest
from serving.call import DecodeOptions, MeasuredCall
from serving.client import Exchange
from serving.errors import InequalityError, LabError

SeenT = TypeVar("SeenT")


def decode_of(factors: Mapping[str, JsonValue]) -> DecodeOptions:
    """The `decode.*` factors of an arm, as a call takes them; `LabError` for one that it does not take."""
    chosen = {
        path.removeprefix("decode."): value for path, value in factors.items() if path.startswith("decode.")
    }
    try:
        return DecodeOptions.model_validate(chosen)
    except ValidationError as error:
        raise LabError(f"Expected decode.* factors that a call takes, got {chosen}: {error}") from error


def call_record(call: MeasuredCall, *, predictable: bool = True) -> CallRecord:
    """A measured call as the run keeps it; `predictable` as the call's `Caller` was told: False keeps no prediction."""
    usage = call.exchange.usage
    broken = call.first_break if predictable else None
    return CallRecord(
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        cached_tokens=call.cached_tokens,
        predicted_tokens=call.prediction.cached_tokens if predictable else None,
        output_tokens=call.exchange.output_tokens,
        ttft_s=call.exchange.ttft_s,
        latency_s=call.exchange.latency_s,
        causes={cause.value: tokens for cause, tokens in call.prediction.causes.items()}
        if predictable
        else {},
        named={cause.value: tokens for cause, tokens in call.miss.tokens.items()}
        if predictable and call.miss is not None
        else {},
        first_broken=None if broken is None else broken.words(),
        excerpt=None
        if broken is None
        else BreakExcerpt(
            position=broken.position,
            stored_ids=broken.stored_ids,
            sent_ids=broken.sent_ids,
            stored_text=broken.stored_text,
            sent_text=broken.sent_text,
        ),
    )


def agreement(calls: Sequence[CallRecord], each: str = "calls") -> str:
    """The sentence that says how often the reuse reported is the reuse predicted; `each` names what was compared."""
    agreed = sum(call.predicted_tokens == call.cached_tokens for call in calls)
    return f"Predicted and reported cached tokens agree in {agreed} of {len(calls)} {each}."


def _ids_and_reuse(record: TrialRecord) -> list[tuple[tuple[int, ...] | None, int | None]]:
    """Prompt ids and cached tokens of every call: what a replay's null arm has in common with its base."""
    return [
        (exchange.prompt_token_ids, call.cached_tokens)
        for exchange, call in zip(record.exchanges, record.calls, strict=True)
    ]


def require_refused(exchange: Exchange) -> Exchange:
    """A failed call that the server would not take, which is a finding; every other failure is the machinery's.

    So is a call that was stopped: nothing in a study stops one but an interruption of the run. Raises
    `InfrastructureError` for those.
    """
    if exchange.error is None or exchange.error.status is None or failed_by_machinery((exchange,)):
        raise InfrastructureError(
            "The model call failed." if exchange.error is None else exchange.error.sentence
        )
    return exchange


def rebuilt(request: AssemblyRequest) -> AssemblyRequest:
    """The same request from a stored copy, with its unordered part in another order: what a null arm sends."""
    copy = AssemblyRequest.model_validate_json(request.model_dump_json())
    return copy.model_copy(update={"tools": copy.tools[::-1]})


def check_rebuilt(records: Iterable[TrialRecord], *, base: str, null: str) -> None:
    """Raise `InequalityError` where the null arm read other ids than its base, after equal outputs.

    For loops whose trials ran side by side: one that got another answer goes on with another history.
    """
    for spec, mine, remade in null_pairs(records, base=base, null=null, seen=lambda record: record):
        _check_same(spec, mine, remade)


def check_replayed(records: Iterable[TrialRecord], *, base: str, null: str) -> None:
    """Raise `InequalityError` at the first call in which a replay's null arm read other ids or reused other tokens.

    For replays: what is sent does not depend on what the model answers, so every call must be the same.
    """
    check_calls(
        records, base=base, null=null, seen=_ids_and_reuse, words=lambda cached: f"{cached} cached tokens"
    )


def check_calls(
    records: Iterable[TrialRecord],
    *,
    base: str,
    null: str,
    seen: Callable[[TrialRecord], Sequence[tuple[tuple[int, ...] | None, SeenT]]],
    words: Callable[[SeenT], str],
) -> None:
    """Raise `InequalityError` at the first call of which null arm and base read other ids, or differ otherwise.

    `seen` gives what has to be equal of each call, its prompt's ids first; `words` says the rest of it.
    """

    def told(call: tuple[tuple[int, ...] | None, SeenT] | None) -> str:
        return "no such call" if call is None else f"{len(call[0] or ())} ids and {words(call[1])}"

    for spec, mine, remade in null_pairs(records, base=base, null=null, seen=seen):
        for number, (one, other) in enumerate(zip_longest(mine, remade)):
            if one != other:
                differ = one is not None and other is not None and one[0] != other[0]
                raise InequalityError(
                    f"Call {number} of {spec.cluster}, rebuilt from a stored copy",
                    expected=f"{told(one)}, as {base}",
                    got=told(other) + (", and the ids differ" if differ else ""),
                )


def check_null(
    records: Iterable[TrialRecord],
    *,
    base: str,
    null: str,
    seen: Callable[[TrialRecord], Mapping[str, object]],
) -> None:
    """Raise `InequalityError` for the first part, by its name in `seen`, in which null arm and base differ."""
    for spec, mine, remade in null_pairs(records, base=base, null=null, seen=seen):
        for name, one in mine.items():
            if one != remade[name]:
                raise InequalityError(
                    f"The {name} of {spec.cluster}, rebuilt from a stored copy",
                    expected=f"{one!r:.200}",
                    got=f"{remade[name]!r:.200}",
                )


def null_pairs(
    records: Iterable[TrialRecord], *, base: str, null: str, seen: Callable[[TrialRecord], SeenT]
) -> Iterator[tuple[TrialSpec, SeenT, SeenT]]:
    """What has to be equal of base and null arm (`seen`), for every task, seed and repeat that both have.

    Only that is kept of a record, so a run of any length can be read through.
    """
    sides: dict[TrialSpec, dict[str, SeenT]] = {}
    for record in records:
        if record.arm in (base, null):
            sides.setdefault(record.spec, {})[record.arm] = seen(record)
    for spec, both in sides.items():
        if len(both) == 2:
            yield spec, both[base], both[null]


def _check_same(spec: TrialSpec, one: TrialRecord, other: TrialRecord) -> None:
    for number, (mine, remade) in enumerate(zip(one.exchanges, other.exchanges, strict=False)):
        if mine.error is not None or remade.error is not None:
            return  # of a turn that was refused only the refused call is kept, and it has no ids
        if mine.prompt_token_ids != remade.prompt_token_ids:
            raise InequalityError(
                f"Prompt ids of call {number} of {spec.cluster}, rebuilt from a stored copy",
                expected=f"the {len(mine.prompt_token_ids or ())} ids of the arm {one.arm!r}",
                got=f"{len(remade.prompt_token_ids or ())} other ones",
            )
        if mine.output_token_ids != remade.output_token_ids:
            return  # from here on the two models read different histories
