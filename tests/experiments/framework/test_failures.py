from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from experiments.framework.failures import failed_by_machinery
from experiments.framework.records import read_records
from experiments.framework.runner import run_study
from experiments.framework.study import TrialContext
from experiments.framework.trials import OutcomeKind, TrialOutcome, TrialSpec
from serving.client import ErrorKind, Exchange, ExchangeError, Surface, Timings
from tests.support.toy_study import TINY, Starter, Toy


def exchange(kind: ErrorKind | None = None, status: int | None = None) -> Exchange:
    return Exchange(
        surface=Surface.CHAT,
        request={"model": "nano", "messages": [{"role": "user", "content": "Hi"}]},
        prompt_token_ids=(1, 2, 3),
        output_token_ids=(4,),
        text="",
        reasoning="",
        tool_calls=(),
        finish_reason=None,
        usage=None,
        metrics=None,
        timings=Timings(
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            sent_ns=0,
            connect_ns=0,
            first_byte_ns=None,
            first_token_ns=None,
            last_token_ns=None,
            done_ns=0,
            arrivals=(),
        ),
        error=None if kind is None else ExchangeError(kind=kind, sentence="It failed.", status=status),
    )


@pytest.mark.parametrize(
    ("kind", "status", "machinery"),
    [
        (ErrorKind.UNREACHABLE, None, True),
        (ErrorKind.CUT, None, True),
        (ErrorKind.SILENCE, None, True),
        (ErrorKind.BAD_DATA, None, True),
        (ErrorKind.HTTP_STATUS, 500, True),
        (ErrorKind.HTTP_STATUS, 503, True),
        (ErrorKind.HTTP_STATUS, 429, True),
        (ErrorKind.HTTP_STATUS, 400, False),
        (ErrorKind.SERVER_ERROR, 400, False),
        (ErrorKind.SERVER_ERROR, None, True),
        (ErrorKind.CANCELLED, None, False),
    ],
)
def test_what_the_machinery_broke_is_told_from_what_the_server_refused(
    kind: ErrorKind, status: int | None, machinery: bool
) -> None:
    found = failed_by_machinery([exchange(), exchange(kind, status)])
    assert (found is not None) is machinery


def test_a_study_that_overlooks_a_broken_call_does_not_get_it_scored(tmp_path: Path) -> None:
    class Careless(Toy):
        def run_trial(self, spec: TrialSpec, context: TrialContext[Path]) -> TrialOutcome:
            broken = context.attempt == 1
            return TrialOutcome(
                exchanges=(exchange(ErrorKind.CUT if broken else None),),
                measures={"right": not broken},
                succeeded=not broken,
                outcome="answer",
            )

    done = run_study(Careless(tmp_path / "ledger"), TINY, folder=tmp_path / "run", serve=Starter())
    records = list(read_records(tmp_path / "run"))
    assert (done.complete, done.failed_attempts) == (8, 8)
    assert {(r.attempt, r.kind) for r in records} == {
        (1, OutcomeKind.INFRASTRUCTURE_ERROR),
        (2, OutcomeKind.OK),
    }
    assert records[0].outcome == "cut: It failed."
    assert records[0].measures == {}, "what was measured on a broken call must not be there to be counted"
    assert records[0].exchanges == (exchange(ErrorKind.CUT),)
    assert not any(record.exchanges for record in read_records(tmp_path / "run", with_exchanges=False))
