"""Why an engine died: from a log of hundreds of lines to one sentence."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict


class Failure(StrEnum):
    """What kind of thing went wrong; OTHER carries the engine's own last words."""

    BLOCK_SIZE = "block_size"
    KV_CACHE_TOO_SMALL = "kv_cache_too_small"
    MODEL_LENGTH = "model_length"
    MISSING_WEIGHTS = "missing_weights"
    TOKENIZER = "tokenizer"
    ARCHITECTURE = "architecture"
    TOOL_PARSER = "tool_parser"
    PORT = "port"
    BAD_FLAG = "bad_flag"
    SEEDED_SAMPLING = "seeded_sampling"
    OUT_OF_MEMORY = "out_of_memory"
    ENGINE_MISSING = "engine_missing"
    PROCESS_DIED = "process_died"
    OTHER = "other"


class RootCause(BaseModel):
    """One failure in one sentence, with the engine's own words where they carry the numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    failure: Failure
    sentence: str
    line: str
    """The message in the log that it was read from."""


def root_cause(log: str) -> RootCause | None:
    """The first known cause in the log, else the first exception that is no mere consequence, else None.

    Rules stand in order of how much they explain: a process that was killed comes last, because an engine
    kills its own processes once another cause has struck.
    """
    messages = [_message(line) for line in log.splitlines()]
    for rule in _RULES:
        if rule.failure is Failure.PROCESS_DIED and (other := _first_exception(messages)):
            return other
        for message in messages:
            if match := rule.pattern.search(message):
                sentence = rule.sentence.format(**match.groupdict())
                return RootCause(failure=rule.failure, sentence=sentence, line=message)
    return _first_exception(messages)


def find_fatal(log: str) -> str | None:
    """The first line by which a process of the engine says that it cannot go on, else None.

    The process that was started first may live on for long after such a line.
    """
    return next((line for line in log.splitlines() if _FATAL.search(line)), None)


class _Rule(NamedTuple):
    failure: Failure
    pattern: re.Pattern[str]
    sentence: str
    """Filled with the pattern's named groups."""


def _rule(failure: Failure, pattern: str, sentence: str) -> _Rule:
    return _Rule(failure, re.compile(pattern), sentence)


_RULES = (
    _rule(
        Failure.BLOCK_SIZE,
        r"No common block size for (?P<asked>\d+) \((?P<backend>\w+): \[MultipleOf\((?P<step>\d+)\)\]",
        "the attention of this backend ({backend}) takes block sizes that are multiples of {step}, and "
        "{asked} was asked for.",
    ),
    _rule(
        Failure.KV_CACHE_TOO_SMALL,
        r"max seq len \((?P<length>\d+)\), \((?P<needed>[\d.]+ GiB) KV cache is needed, .* memory "
        r"\((?P<available>[\d.]+ GiB)\)",
        "one request of {length} tokens needs {needed} of KV cache and there are {available}: make the cache "
        "larger or max_model_len smaller.",
    ),
    _rule(
        Failure.KV_CACHE_TOO_SMALL,
        r"No available memory for the cache blocks",
        "no memory is left for the KV cache: ask for a size in bytes, or take a smaller model.",
    ),
    _rule(
        Failure.MODEL_LENGTH,
        r"max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len \(\w+=(?P<limit>\d+)",
        "max_model_len {asked} was asked for and the model's limit is {limit} tokens.",
    ),
    _rule(
        Failure.MISSING_WEIGHTS,
        r"Cannot find any model weights with `(?P<folder>[^`]+)`",
        "{folder} holds no weight files: pull the model again, or serve its shape with dummy weights.",
    ),
    _rule(
        Failure.ARCHITECTURE,
        r"Model architectures \[(?P<names>[^\]]*)\] are not supported",
        "this vLLM does not know the architecture {names}: take another model or a newer vLLM.",
    ),
    _rule(
        Failure.TOOL_PARSER,
        r"invalid tool call parser: (?P<name>\S+)",
        "this vLLM has no tool-call parser named {name}.",
    ),
    _rule(
        Failure.PORT,
        r"\[Errno (?:98|48)\].*ddress already in use",
        "the port is already in use: end the program that listens there, or choose another port.",
    ),
    _rule(
        Failure.BAD_FLAG,
        r"error: (?P<what>(?:unrecognized arguments|argument ).*)",
        "vLLM refused its command line ({what}).",
    ),
    _rule(
        Failure.SEEDED_SAMPLING,
        r"CPU Generator does not use offset",
        "a request with a seed and temperature above 0 had a longer uncached prompt than one prefill step "
        "holds, which kills vLLM's CPU engine: raise max_num_batched_tokens to max_model_len, or use "
        "temperature 0.",
    ),
    _rule(
        Failure.OUT_OF_MEMORY,
        r"CUDA out of memory|OutOfMemoryError|can't allocate memory|MemoryError|Cannot allocate memory",
        "the memory was not enough: take a smaller model or a smaller KV cache, or end other programs.",
    ),
    _rule(
        Failure.ENGINE_MISSING,
        r"No module named '?vllm\b",
        "vLLM is not installed in the environment that should run it: install it, or choose another backend.",
    ),
    _rule(
        Failure.PROCESS_DIED,
        r"Worker proc (?P<name>\S+) died unexpectedly",
        "a worker of the engine ({name}) was killed or crashed; with too little memory the system kills the "
        "largest.",
    ),
    _rule(
        Failure.PROCESS_DIED,
        r"engine core exited unexpectedly|Engine core process \S+ died unexpectedly",
        "the engine's core process was killed or crashed; with too little memory the system kills the "
        "largest.",
    ),
)

_PREFIX = re.compile(r"^(?:\([^)]* pid=\d+\) ?)?(?:[A-Z]+ \d\d-\d\d [\d:]+ \[[^\]]*\] ?)?")
_EXCEPTION = re.compile(r"^(?:Value error, |[A-Za-z_][\w.]*(?:Error|Exception): )\S")
_CONSEQUENCE = re.compile(
    r"Engine core initialization failed|initialization failed due to an exception|"
    r"EngineDeadError|Executor failed|CancelledError|cancelled|validation errors? for"
)
_FATAL = re.compile(
    r"EngineCore failed to start|WorkerProc failed to start|EngineCore encountered a fatal error|"
    r"Worker proc \S+ died unexpectedly|Engine core process \S+ died unexpectedly|"
    r"engine core exited unexpectedly|Engine core initialization failed"
)


def _first_exception(messages: list[str]) -> RootCause | None:
    for message in messages:
        if _EXCEPTION.match(message) and not _CONSEQUENCE.search(message):
            return RootCause(failure=Failure.OTHER, sentence=f"{message.rstrip('.')}.", line=message)
    return None


def _message(line: str) -> str:
    return _PREFIX.sub("", line).strip()
