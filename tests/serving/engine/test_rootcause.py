"""Logs of real failures of vLLM 0.32 (shortened: progress lines and source frames left out)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.rootcause import Failure, find_fatal, root_cause
from serving.engine.stages import Stage, furthest_stage

LOGS = Path(__file__).parent / "logs"

CASES = {
    "block_size_16": (Failure.BLOCK_SIZE, "multiples of 32, and 16 was asked for"),
    "missing_weights": (Failure.MISSING_WEIGHTS, "/models/tiny holds no weight files"),
    "kv_cache_too_small": (Failure.KV_CACHE_TOO_SMALL, "one request of 2048 tokens needs"),
    "model_len_too_long": (
        Failure.MODEL_LENGTH,
        "the model's limit is 2048 tokens",
    ),
    "port_taken": (Failure.PORT, "the port is already in use"),
    "wrong_dtype": (Failure.BAD_FLAG, "argument --dtype: invalid choice: 'float8'"),
    "seeded_long_prompt": (Failure.SEEDED_SAMPLING, "raise max_num_batched_tokens to max_model_len"),
    "engine_killed_serving": (Failure.PROCESS_DIED, "core process was killed or crashed"),
    "worker_killed_serving": (
        Failure.PROCESS_DIED,
        "a worker of the engine (VllmWorker-0) was killed or crashed",
    ),
    "unknown_flag": (Failure.BAD_FLAG, "unrecognized arguments: --no-such-flag"),
    "unknown_tool_parser": (Failure.TOOL_PARSER, "no tool-call parser named nosuch"),
    "unknown_architecture": (Failure.ARCHITECTURE, "'NoSuchForCausalLM'"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_real_failure_becomes_one_sentence(name: str) -> None:
    failure, words = CASES[name]
    cause = root_cause((LOGS / f"{name}.log").read_text())
    assert cause is not None
    assert cause.failure is failure
    assert words in cause.sentence
    assert "\n" not in cause.sentence
    assert cause.sentence.endswith(".")


def test_every_log_is_a_case() -> None:
    assert {file.stem for file in LOGS.iterdir()} == {*CASES, "healthy"}


@pytest.mark.parametrize("name", ["block_size_16", "missing_weights"])
def test_a_fatal_line_stands_before_the_last_process_ends(name: str) -> None:
    log = (LOGS / f"{name}.log").read_text()
    fatal = find_fatal(log)
    assert fatal is not None
    assert log.index(fatal) < log.index("Engine core initialization failed")


def test_a_healthy_log_holds_no_failure_and_passes_through_the_stages_in_order() -> None:
    lines = (LOGS / "healthy.log").read_text().splitlines(keepends=True)
    assert find_fatal("".join(lines)) is None
    assert root_cause("".join(lines)) is None
    order = list(Stage)
    reached = [order.index(furthest_stage("".join(lines[:count]))) for count in range(len(lines) + 1)]
    assert reached == sorted(reached)
    assert set(reached) == set(range(len(order)))


def test_an_unknown_exception_is_told_in_its_own_words_and_its_consequences_are_not() -> None:
    log = (
        "(EngineCore pid=3) ERROR 01-01 00:00:00 [core.py:1] EngineCore failed to start.\n"
        "(EngineCore pid=3) ERROR 01-01 00:00:00 [core.py:1] KeyError: 'rope'\n"
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    cause = root_cause(log)
    assert cause is not None
    assert (cause.failure, cause.sentence) == (Failure.OTHER, "KeyError: 'rope'.")


def test_a_refused_configuration_is_told_in_the_words_of_the_check_that_refused_it() -> None:
    log = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, no such quantization [type=value_error]\n"
    )
    cause = root_cause(log)
    assert cause is not None
    assert cause.sentence == "Value error, no such quantization [type=value_error]."


def test_a_consequence_alone_is_no_cause() -> None:
    assert root_cause("RuntimeError: Engine core initialization failed. See root cause above.\n") is None


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    cause = root_cause(text)
    assert cause is None or cause.line in text or cause.line.strip() == cause.line
    fatal = find_fatal(text)
    assert fatal is None or fatal in text
