"""Whole replays in this process: a real template and tokenizer, and a stand-in that reuses blocks by its own count."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from experiments.framework import Served, TrialContext, TrialOutcome, TrialSpec, run_study
from experiments.framework.arms import NULL_REBUILD, resolve
from experiments.framework.records import read_records
from experiments.framework.served_model import ServedModel
from experiments.framework.trials import TrialRecord
from experiments.prefix_cache import ARMS, PrefixCacheStudy
from experiments.prefix_cache.arms import APPEND_ONLY
from experiments.prefix_cache.ceiling import ceilings
from experiments.prefix_cache.workload import workloads
from serving.client import CompletionRequest
from serving.errors import InequalityError, LabError
from serving.explain.causes import MissCause
from serving.models import ModelFolder
from tests.support.caching_client import CachingClient
from tests.support.made_record import made_record
from tests.support.tiny_model import write_tiny_folder

BLOCK = 16
REPLAYED = (
    APPEND_ONLY,
    NULL_REBUILD,
    "clock-by-tool",
    "clock-system-head",
    "tools-appended",
    "bar-append-tail",
    "bar-replace-response",
    "token-in",
)
"""One of each kind; all of them are replayed by the test marked `full`."""


def target(client: CachingClient, folder: Path, *, num_blocks: int = 100_000) -> ServedModel:
    model = ModelFolder.model_construct(
        name="tiny", path=folder, reasoning_parser="qwen3", tool_parser="hermes"
    )
    return ServedModel(client, model, BLOCK, num_blocks, 40_000)  # type: ignore[arg-type]


def replay(
    folder: Path,
    arm: str,
    task: str = "file-tour-4",
    *,
    num_blocks: int = 100_000,
    reuses: bool = True,
) -> tuple[TrialOutcome, CachingClient]:
    study = PrefixCacheStudy("qwen3-nano-shape", block_size=BLOCK)
    chosen = next(one for one in ARMS if one.name == arm)
    client = CachingClient(folder, BLOCK, forgets=not reuses)
    context = TrialContext(
        arm=chosen,
        factors=resolve(study.base, chosen),
        target=target(client, folder, num_blocks=num_blocks),
        salt="s",
        attempt=1,
    )
    return study.run_trial(TrialSpec(task=task, seed=0), context), client


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("served"), "qwen3")


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> dict[str, TrialOutcome]:
    return {arm: replay(folder, arm)[0] for arm in REPLAYED}


@pytest.mark.parametrize("arm", REPLAYED)
def test_every_call_is_reused_as_predicted_and_both_splits_add_up(
    arm: str, outcomes: dict[str, TrialOutcome]
) -> None:
    outcome = outcomes[arm]
    for call in outcome.calls:
        assert call.prompt_tokens is not None
        assert call.cached_tokens == call.predicted_tokens is not None
        computed = call.prompt_tokens - call.cached_tokens
        assert sum(call.named.values()) == sum(call.causes.values()) == computed
    assert outcome.measures["uncached_tokens"] == sum(sum(call.named.values()) for call in outcome.calls)


@pytest.mark.parametrize("arm", [APPEND_ONLY, NULL_REBUILD, "clock-by-tool", "bar-append-tail", "token-in"])
def test_what_only_appends_is_at_its_ceiling(arm: str, outcomes: dict[str, TrialOutcome]) -> None:
    calls = outcomes[arm].calls
    assert tuple(call.cached_tokens for call in calls) == ceilings(calls, BLOCK)
    assert all(call.first_broken is None for call in calls)


@pytest.mark.parametrize("arm", ["clock-system-head", "tools-appended", "bar-replace-response"])
def test_what_changes_is_below_its_ceiling_and_says_where(
    arm: str, outcomes: dict[str, TrialOutcome]
) -> None:
    calls = outcomes[arm].calls
    bounds = ceilings(calls, BLOCK)
    assert bounds is not None
    assert sum(call.cached_tokens or 0 for call in calls) < sum(bounds)
    broken = [call for call in calls if call.first_broken]
    assert broken
    for call in broken:
        assert call.excerpt is not None
        assert call.excerpt.stored_text != call.excerpt.sent_text


def test_a_clock_is_called_a_clock(outcomes: dict[str, TrialOutcome]) -> None:
    for call in outcomes["clock-system-head"].calls[1:]:
        assert call.named[MissCause.CLOCK.value] > call.named.get(MissCause.NEW.value, 0)


def test_a_bar_that_is_replaced_is_called_ephemeral(outcomes: dict[str, TrialOutcome]) -> None:
    for call in outcomes["bar-replace-response"].calls[1:]:
        assert call.named[MissCause.EPHEMERAL.value] > 0


def test_token_ids_are_those_of_the_messages(outcomes: dict[str, TrialOutcome], folder: Path) -> None:
    by_ids, by_messages = outcomes["token-in"], outcomes[APPEND_ONLY]
    assert [e.prompt_token_ids for e in by_ids.exchanges] == [
        e.prompt_token_ids for e in by_messages.exchanges
    ]
    _, client = replay(folder, "token-in", "file-tour-1")
    assert isinstance(client.requests[0], CompletionRequest)


def test_an_appended_bar_stays_in_the_bytes_it_came_in(outcomes: dict[str, TrialOutcome]) -> None:
    prompts = [exchange.prompt_token_ids or () for exchange in outcomes["bar-append-tail"].exchanges]
    replaced = [exchange.prompt_token_ids or () for exchange in outcomes["bar-replace-response"].exchanges]
    assert len(prompts[-1]) > len(replaced[-1])
    assert all(len(one) < len(other) for one, other in pairwise(prompts))


def test_a_server_that_reuses_nothing_breaks_the_equality(folder: Path) -> None:
    with pytest.raises(InequalityError, match="Cached tokens"):
        replay(folder, APPEND_ONLY, "file-tour-2", reuses=False)


def test_a_pool_that_cannot_hold_the_trial_is_refused(folder: Path) -> None:
    with pytest.raises(LabError, match="the pool has 20"):
        replay(folder, APPEND_ONLY, "file-tour-1", num_blocks=20)


def test_a_null_arm_that_read_other_ids_stops_the_run(outcomes: dict[str, TrialOutcome]) -> None:
    study = PrefixCacheStudy("qwen3-nano-shape", block_size=BLOCK)
    records = [kept(arm, outcomes[arm]) for arm in (APPEND_ONLY, NULL_REBUILD)]
    study.verify(records)
    other = kept(NULL_REBUILD, outcomes["clock-by-tool"])
    with pytest.raises(InequalityError, match="rebuilt from a stored copy"):
        study.verify([records[0], other])


def test_an_append_only_run_below_its_ceiling_stops_the_run(outcomes: dict[str, TrialOutcome]) -> None:
    study = PrefixCacheStudy("qwen3-nano-shape", block_size=BLOCK)
    with pytest.raises(InequalityError, match="exactly"):
        study.verify([kept(APPEND_ONLY, outcomes["clock-system-head"])])


def kept(arm: str, outcome: TrialOutcome) -> TrialRecord:
    made = made_record("prefix-cache", arm, "file-tour-4", 0, outcome.measures, calls=outcome.calls)
    return made.model_copy(update={"exchanges": outcome.exchanges})


@pytest.mark.full
def test_a_full_replay_of_all_arms_shows_what_each_of_them_says(folder: Path, tmp_path: Path) -> None:
    from contextlib import contextmanager

    @contextmanager
    def serve(_engine):
        yield Served(target=target(CachingClient(folder, BLOCK), folder), environment={"engine": "none"})

    study = PrefixCacheStudy("qwen3-nano-shape", block_size=BLOCK)
    (size,) = (one for one in study.sizes if one.name == "full")
    # The window of the compaction arm is one for Qwen's tokens; here a token is a few letters.
    arms = tuple(arm.name for arm in ARMS if arm.name != "compaction")
    from experiments.framework import RunOptions

    run_study(study, size, folder=tmp_path, serve=serve, options=RunOptions(arms=arms))
    records = list(read_records(tmp_path, with_exchanges=False))
    main, thinking = workloads(ARMS, records)
    for workload in (main, thinking):
        for arm in workload.arms:
            (record,) = workload.of(arm.name)
            for call in record.calls:
                assert sum(call.named.values()) == (call.prompt_tokens or 0) - (call.cached_tokens or 0)

    def causes(arm: str) -> set[str]:
        (record,) = main.of(arm)
        return {cause for call in record.calls for cause in call.named if MissCause(cause).avoidable}

    assert not any(MissCause.BRANCHED in call.named for record in main.records for call in record.calls)
    assert causes("sliding-window") == causes("sliding-window-10") == {MissCause.TRIMMED_HISTORY}
    assert causes("text-transcript") == {MissCause.GROWN_MESSAGE}
    assert causes("text-transcript-moving-head") == {MissCause.COUNTER}
    assert causes("clock-last-message") == causes("clock-last-user-message") == {MissCause.CLOCK}
    for short in ("tail", "user", "response"):
        assert causes(f"bar-replace-{short}") == {MissCause.EPHEMERAL}

    def lost(workload, arm: str) -> float:
        return (workload.ceiling(arm) or 0) - (workload.cached(arm) or 0)

    at_the_ceiling = {arm.name for arm in main.arms if not lost(main, arm.name)}
    assert at_the_ceiling >= {APPEND_ONLY, NULL_REBUILD, "clock-by-tool", "token-in"}
    assert at_the_ceiling >= {f"bar-append-{short}" for short in ("tail", "user", "response")}
    assert (
        lost(main, "clock-system-head")
        > lost(main, "clock-last-user-message")
        > lost(main, "clock-last-message")
    )
    assert lost(main, "masking-rotated") > lost(main, "masking-frozen") > 0
    assert lost(main, "text-transcript-moving-head") > lost(main, "text-transcript")
    # The threshold is passed twice: what was masked before is reused between, and stays when more is masked.
    broken = [n for n, call in enumerate(main.of("masking-frozen")[0].calls) if call.first_broken]
    assert len(broken) == 2
    assert broken[1] > broken[0] + 1
    # Qwen3's template gives up old thoughts at the next question; text it keeps.
    assert lost(thinking, APPEND_ONLY) > 0
    assert lost(thinking, "reasoning-echoed") == lost(thinking, "reasoning-dropped") == 0
