from __future__ import annotations

import pytest

from experiments.framework import InequalityError, InfrastructureError, TrialRecord
from experiments.framework.measured import check_rebuilt, decode_of, rebuilt, require_refused
from experiments.framework.trials import total
from serving.assembler import Trajectory, UserTurn
from serving.call import DecodeOptions
from serving.client import ErrorKind, Exchange, ExchangeError
from serving.errors import LabError
from tests.support.made_tools import contract
from tests.support.scripted import CONTEXT, exchange
from tests.support.technique_records import record


@pytest.mark.parametrize(
    ("parts", "sum_of_them"),
    [((), 0), ((1.5, 2), 3.5), ((1, None), None), ((None,), None)],
)
def test_a_total_is_unknown_where_one_part_is(parts, sum_of_them) -> None:
    assert total(iter(parts)) == sum_of_them


def failed(kind: ErrorKind, status: int | None = None) -> Exchange:
    error = ExchangeError(kind=kind, sentence="It broke", status=status)
    return exchange().model_copy(update={"error": error})


def test_only_what_the_server_refuses_with_its_reason_is_a_finding() -> None:
    refused = failed(ErrorKind.HTTP_STATUS, 400)
    assert require_refused(refused) is refused
    for broken in (
        failed(ErrorKind.HTTP_STATUS, 500),
        failed(ErrorKind.HTTP_STATUS, 429),
        failed(ErrorKind.CUT),
        failed(ErrorKind.CANCELLED),
    ):
        with pytest.raises(InfrastructureError, match="It broke"):
            require_refused(broken)
    with pytest.raises(InfrastructureError):
        require_refused(exchange())


def test_a_rebuilt_request_is_another_object_with_the_tools_in_another_order() -> None:
    tools = (contract("look").spec, contract("list").spec)
    asked = Trajectory(system="Look.", tools=tools, turns=(UserTurn(text="What is here?"),))
    request = asked.request(asked.calls - 1, context=CONTEXT, window=900, max_output=9)
    again = rebuilt(request)
    assert again is not request
    assert len(request.tools) == 2
    assert again.tools == request.tools[::-1]
    assert again.model_copy(update={"tools": request.tools}) == request


def read(arm: str, *calls: tuple[tuple[int, ...], tuple[int, ...]]) -> TrialRecord:
    """A trial of calls, each with the ids of its prompt and of its answer."""
    exchanges = tuple(
        exchange().model_copy(update={"prompt_token_ids": prompt, "output_token_ids": output})
        for prompt, output in calls
    )
    return record(arm, "files-0", 0).model_copy(update={"exchanges": exchanges})


def test_a_null_arm_may_read_other_ids_only_after_another_answer() -> None:
    base = read("none", ((1,), (2,)), ((1, 2, 3), (4,)))
    same, parted = (
        read("null-rebuild", ((1,), (2,)), ((1, 2, 3), (4,))),
        read("null-rebuild", ((1,), (9,)), ((1, 9, 3), (4,))),
    )
    check_rebuilt([base, same], base="none", null="null-rebuild")
    check_rebuilt([base, parted], base="none", null="null-rebuild")
    check_rebuilt([base], base="none", null="null-rebuild")
    for other in (((8,), (2,)), ((1,), (2,))):
        wrong = read("null-rebuild", other, ((1, 2, 8), (4,)))
        with pytest.raises(InequalityError, match="rebuilt from a stored copy"):
            check_rebuilt([base, wrong], base="none", null="null-rebuild")


def test_of_a_turn_that_was_refused_no_ids_are_compared() -> None:
    """Only the refused call of it is kept, whatever calls came before."""
    base = read("none", ((1,), (2,)), ((1, 2, 3), (4,)))
    refused = base.model_copy(
        update={"arm": "null-rebuild", "exchanges": (failed(ErrorKind.HTTP_STATUS, 400),)}
    )
    check_rebuilt([base, refused], base="none", null="null-rebuild")
    check_rebuilt([base, refused], base="null-rebuild", null="none")


def test_the_decode_factors_of_an_arm_are_how_its_calls_are_asked() -> None:
    factors = {"decode.max_tokens": 7, "decode.tool_choice": "required", "engine.model": "m"}
    assert decode_of(factors) == DecodeOptions(max_tokens=7, tool_choice="required")
    with pytest.raises(LabError, match="decode"):
        decode_of({"decode.max_tokens": 7, "decode.colour": "red"})
