from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from experiments.framework import Arm, RunOptions, Size, StoppedError, publish, run_study
from experiments.framework.records import RunFolder, count_attempts, read_records
from experiments.framework.runner import identify
from experiments.framework.statistics import smallest_detectable
from experiments.framework.study import TrialContext, TrialSpec
from experiments.framework.trials import Measure
from experiments.latency import cells
from experiments.latency.analysis import analyse
from experiments.latency.compare import compare_runs, comparison_table
from experiments.latency.energy import Counter
from experiments.latency.export import COLUMNS, export_csv
from experiments.latency.study import LatencyStudy
from experiments.latency.target import serve_urls
from experiments.latency.workload import Shape
from serving.errors import InequalityError, LabError, UsageError
from tests.support.made_load import record_of
from tests.support.stub import Stub, running_stub

SHAPE = Shape(prompt_tokens=70, output_tokens=4)
LOADS = (
    cells.closed(1, SHAPE),
    cells.closed(3, SHAPE),
    *(cells.closed(1, SHAPE.model_copy(update={"hit_percent": share})) for share in (50, 100)),
    cells.closed(1, SHAPE.model_copy(update={"turns": 3, "follow_up_tokens": 20})),
    cells.poisson(200, SHAPE),
)


@pytest.fixture(scope="module")
def stub() -> Iterator[Stub]:
    with running_stub("completing") as server:
        yield server


def study(*urls: str, seeds: int = 2) -> LatencyStudy:
    size = Size(name="tiny", tasks=1, seeds=seeds)
    return LatencyStudy("m", loads=LOADS, urls=urls, sizes=(size,), requests=3, with_ceilings=False)


def run(made: LatencyStudy, folder: Path) -> None:
    serve = serve_urls(None, model=None, api_key=None, dtype=None, device=None)
    run_study(made, made.sizes[0], folder=folder, serve=serve)


@pytest.fixture(scope="module")
def folder(stub: Stub, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("latency") / "run"
    run(study(stub.base_url), place)
    return place


def test_every_call_of_every_load_reuses_what_was_asked(folder: Path) -> None:
    calls = [(record, call) for record in read_records(folder) for call in record.calls]
    assert len(calls) == 2 * (3 + 6 + 3 + 3 + 9 + 3 + 3)
    for record, call in calls:
        assert call.predicted_tokens == call.cached_tokens, record.arm
    cached = {record.arm: call.cached_tokens for record, call in calls if record.factors["load.turns"] == 1}
    assert [cached[f"c1-p70-o4-h{share}"] for share in (0, 50, 100)] == [0, 32, 64]


def test_a_load_keeps_its_times_and_rates(folder: Path) -> None:
    for record in read_records(folder):
        assert record.measures["ttft_p50_s"] and record.measures["tpot_mean_s"] is not None
        assert record.measures["run_output_tokens_per_s"]
        assert record.measures["joules"] is None
        concurrency = record.factors["load.concurrency"]
        assert record.measures["requests"] == (
            9 if record.factors["load.turns"] == 3 else max(3, 2 * concurrency)
        )


def test_energy_is_counted_over_a_load_and_not_over_its_warm_up(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = count()
    counter = Counter(lambda: float(next(readings)))
    monkeypatch.setattr("experiments.latency.study.counters_of", lambda device: (counter,))
    size = Size(name="tiny", tasks=1, seeds=1)
    run(
        LatencyStudy(
            "m", loads=LOADS[:1], urls=(stub.base_url,), sizes=(size,), requests=3, with_ceilings=False
        ),
        tmp_path / "run",
    )
    for record in read_records(tmp_path / "run"):
        assert record.measures["joules"] == 1
        tokens = sum(exchange.output_tokens or 0 for exchange in record.exchanges)
        assert record.measures["joules_per_output_token"] == pytest.approx(1 / tokens)
    assert next(readings) == 4  # twice a load: the cell, and the same again


def test_a_closed_loop_never_has_more_calls_at_once_than_clients(folder: Path) -> None:
    for record in read_records(folder):
        if record.factors["load.kind"] == "closed":
            spans = [(e.timings.sent_ns, e.timings.sent_ns + e.timings.done_ns) for e in record.exchanges]
            most = max(sum(begin <= at < end for begin, end in spans) for at, _ in spans)
            assert most <= record.factors["load.concurrency"]


def test_the_page_and_the_export_hold_every_cell(folder: Path, tmp_path: Path) -> None:
    text = publish(study("http://x"), folder).read_text(encoding="utf-8")
    assert all(arm.name in text for arm in LOADS)
    assert "No ceiling was measured" in text
    lines = (tmp_path / "requests.csv", export_csv(folder, tmp_path / "requests.csv"))
    assert lines[0].read_text().splitlines()[0] == ",".join(COLUMNS)
    assert lines[1] == len(lines[0].read_text().splitlines()) - 1 == 60


def test_two_runs_are_compared_cell_by_cell_and_seed_by_seed(folder: Path) -> None:
    found = compare_runs(folder, folder)
    assert {difference.cell for difference in found.differences} == {
        *(arm.name for arm in LOADS),
        cells.AGAIN,
    }
    assert all(difference.effect.interval.estimate == 0 for difference in found.differences)
    assert not any(difference.told_apart for difference in found.differences)
    assert found.only_first == found.only_second == ()
    assert len(comparison_table(found).rows) == len(found.differences)


def made_run(folder: Path, seeds: int, times: dict[str, Sequence[float]]) -> Path:
    """A run of one cell with these measures, one value a seed."""
    identity, diff = identify(study("http://x"), Size(name="tiny", tasks=1, seeds=seeds), RunOptions())
    with RunFolder.open(folder, identity, diff) as run_folder:
        for seed in range(seeds):
            measures: dict[str, Measure] = {name: values[seed] for name, values in times.items()}
            run_folder.append(record_of(LOADS[0].name, seed, measures))
    return folder


@pytest.mark.parametrize(
    ("seeds", "measures", "verdict"),
    [
        (5, ("ttft_p50_s",), "no: 6 seeds are needed"),
        (6, ("ttft_p50_s",), "yes"),
        (6, ("ttft_p50_s", "tpot_mean_s"), "no: 7 seeds are needed"),
        (7, ("ttft_p50_s", "tpot_mean_s"), "yes"),
    ],
)
def test_a_difference_in_every_seed_is_told_apart_where_that_is_no_chance_for_so_many_rows(
    tmp_path: Path, seeds: int, measures: tuple[str, ...], verdict: str
) -> None:
    before = made_run(
        tmp_path / "a", seeds, {name: [1.0 + seed / 9 for seed in range(9)] for name in measures}
    )
    after = made_run(
        tmp_path / "b", seeds, {name: [2.0 + seed / 8 for seed in range(9)] for name in measures}
    )
    found = compare_runs(before, after)
    assert all(difference.effect.interval.excludes_zero for difference in found.differences)
    assert [row[-1] for row in comparison_table(found).rows] == [verdict] * len(measures)


def test_a_difference_that_may_be_chance_says_what_would_have_been_found(tmp_path: Path) -> None:
    noise = (0.1, -0.1, 0.2, -0.2, 0.1, -0.1, 0.05)
    before = made_run(tmp_path / "a", 7, {"ttft_p50_s": [1.0] * 7, "tpot_mean_s": [1.0] * 7})
    after = made_run(
        tmp_path / "b", 7, {"ttft_p50_s": [1.0 + more for more in noise], "tpot_mean_s": [1.0] * 7}
    )
    found = compare_runs(before, after)
    alone = smallest_detectable(noise)
    as_one_of_two = found.differences[0].effect.detectable
    assert alone is not None and as_one_of_two is not None and as_one_of_two > alone
    assert [row[-1] for row in comparison_table(found).rows] == [
        f"no: the run would have found {as_one_of_two:.2g}",
        "no: all pairs are alike, so what the run would have found is not known",
    ]


def test_runs_that_differ_in_the_number_of_requests_are_told_so(stub: Stub, tmp_path: Path) -> None:
    for requests in (2, 3):
        made = LatencyStudy(
            "m",
            loads=LOADS[:1],
            urls=(stub.base_url,),
            requests=requests,
            with_ceilings=False,
            sizes=(Size(name="tiny", tasks=1, seeds=1),),
        )
        run(made, tmp_path / str(requests))
    with pytest.raises(UsageError, match=r"share no cell and seed: .* the same number of requests"):
        compare_runs(tmp_path / "2", tmp_path / "3")


def test_runs_of_unlike_machines_engines_and_code_say_so(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert compare_runs(folder, copy).differing == {}
    info = json.loads((copy / "run.json").read_text())
    next(iter(info["environments"].values()))["facts"] |= {
        "engine": "vllm 9",
        "asked_from": "another, 64 cores",
    }
    info["sessions"][0]["platform"] = "elsewhere"
    (copy / "run.json").write_text(json.dumps(info))
    differing = compare_runs(folder, copy).differing
    assert differing.keys() == {"engine", "asked_from", "platform"}
    assert differing["engine"] == ("vllm 0.32.0", "vllm 9")


def test_a_folder_of_another_study_is_not_compared(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run folder"):
        compare_runs(folder, tmp_path)


def test_an_interrupted_run_keeps_what_was_measured_and_goes_on(stub: Stub, tmp_path: Path) -> None:
    made = study(stub.base_url, seeds=1)
    whole, calls = made.run_trial, 0

    def interrupted(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return whole(*arguments)  # type: ignore[arg-type]

    made.run_trial = interrupted  # type: ignore[method-assign, assignment]
    with pytest.raises(StoppedError, match="after 3 of 7"):
        run(made, tmp_path / "run")
    before = [record.salt for record in read_records(tmp_path / "run")]
    run(study(stub.base_url, seeds=1), tmp_path / "run")
    after = [record.salt for record in read_records(tmp_path / "run")]
    assert after[:3] == before
    assert len(set(after)) == 7
    assert count_attempts(tmp_path / "run") == 8


def test_several_servers_are_worked_through_as_one_queue(stub: Stub, tmp_path: Path) -> None:
    with running_stub("completing") as other:
        made = study(stub.base_url, other.base_url, seeds=1)
        run(made, tmp_path / "run")
        records = list(read_records(tmp_path / "run"))
        assert len(records) == 2 * len(LOADS) + 1
        urls = [record.factors["engine.url"] for record in records]
        assert urls == sorted(
            urls, key=[*dict.fromkeys(urls)].index
        )  # one server is done before the next begins
        assert len(other.all_logs()) > 0


def test_the_ceilings_are_measured_once_whatever_the_number_of_servers() -> None:
    made = LatencyStudy("m", loads=LOADS[:1], urls=("http://a", "http://b"), with_ceilings=True)
    assert [arm.name for arm in made.arms] == [LOADS[0].name, "ceilings", "again", f"s2-{LOADS[0].name}"]


def test_only_an_engine_that_is_started_is_asked_for_blocks_of_a_size() -> None:
    assert LatencyStudy("m", block_size=16).base["engine.block_size"] == 16
    assert "engine.block_size" not in LatencyStudy("m", urls=("http://a",)).base


@pytest.mark.parametrize(
    ("load", "sentence"),
    [
        (cells.closed(3, SHAPE), "3 calls of 74 tokens need 20 blocks"),
        (cells.poisson(1, SHAPE), "6 calls of 74 tokens need 35 blocks"),
    ],
)
def test_a_pool_too_small_for_all_calls_that_may_run_at_once_is_refused_before_any_is_sent(
    stub: Stub, load: Arm, sentence: str
) -> None:
    made = LatencyStudy("m", loads=(load,), urls=(stub.base_url,), requests=6, with_ceilings=False)
    stub.all_logs()  # of the tests before
    serve = serve_urls(None, model=None, api_key=None, dtype=None, device=None)
    with serve({"engine.url": stub.base_url}) as served:
        context = TrialContext(
            arm=load,
            factors=made.base | load.factors,
            target=replace(served.target, block_size=16, num_blocks=20),
            salt="s",
            attempt=0,
        )
        with pytest.raises(LabError, match=sentence):
            made.run_trial(TrialSpec(task="requests-6", seed=0), context)
    assert not stub.all_logs()


@pytest.mark.parametrize(
    ("loads", "urls", "sentence"),
    [
        ((), (), "at least one load"),
        ((LOADS[0], LOADS[0]), (), "every load once"),
        (LOADS[:1], ("http://a", "http://a"), "every server once"),
    ],
)
def test_no_load_and_a_load_or_server_given_twice_are_refused(
    loads: tuple[Arm, ...], urls: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        LatencyStudy("m", loads=loads, urls=urls)


def test_a_client_that_was_late_is_named_in_the_conclusion() -> None:
    def conclusion(late_s: float) -> str:
        record = record_of(LOADS[5].name, 0, {"late_max_s": late_s}, rate_per_s=2, kind="poisson")
        return analyse(LOADS, [record]).conclusion

    assert "the client itself sent a request 0.2 s after it was due" in conclusion(0.2)
    assert "client itself" not in conclusion(0.01)


@pytest.mark.parametrize(
    ("ceilings_at", "work", "why"),
    [
        (None, {"prefill_flop": 1e9}, "No ceiling was measured, so no share"),
        (0, {}, "Ceilings were measured, but the account of the work does not fit this model"),
        (1, {"prefill_flop": 1e9}, "No seed has both a load and the ceilings yet, so no share"),
    ],
)
def test_where_no_floor_is_told_the_conclusion_says_why(
    ceilings_at: int | None, work: dict[str, Measure], why: str
) -> None:
    records = [
        record_of(LOADS[0].name, 0, {"ttft_mean_s": 1.0, "prefill_bytes": 1e6, "late_max_s": 0.0} | work)
    ]
    if ceilings_at is not None:
        reached = {"ceiling_bytes_per_s": 1e9, "ceiling_flop_per_s": 1e10}
        records.append(record_of(cells.CEILINGS, ceilings_at, reached, kind="none"))
    assert why in analyse(LOADS, records).conclusion


def test_a_server_that_reports_more_reuse_than_was_asked_stops_the_run(tmp_path: Path) -> None:
    with running_stub("completing-liar") as liar, pytest.raises(InequalityError, match="0 % asked"):
        run(study(liar.base_url, seeds=1), tmp_path / "run")
