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
    PORT = "port"
    BAD_FLAG = "bad_flag"
    SEEDED_SAMPLING = "seeded_sampling"
    OUT_OF_MEMORY = "out_of_memory"
    ENGINE_MISSING = "engine_missing"
    WORKER_DIED = "worker_died"
    OTHER = "other"


class RootCause(BaseModel):
    """One failure in one sentence, with the engine's own words where they carry the numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    failure: Failure
    sentence: str
    line: str
    """The log line it was read from."""


class _Rule(NamedTuple):
    failure: Failure
    pattern: re.Pattern[str]
    sentence: str
    """Filled with the pattern's named groups; `{line}` is the whole message."""


def _rule(failure: Failure, pattern: str, sentence: str) -> _Rule:
    return _Rule(failure, re.compile(pattern), sentence)


_RULES: tuple[_Rule, ...] = ()


def root_cause(log: str) -> RootCause | None:
    """The first known cause in the log, else the first exception that is no mere consequence, else None."""
    messages = [_message(line) for line in log.splitlines()]
    for rule in _RULES:
        for message in messages:
            if match := rule.pattern.search(message):
                sentence = rule.sentence.format(line=message, **match.groupdict())
                return RootCause(failure=rule.failure, sentence=sentence, line=message)
    for message in messages:
        if _EXCEPTION.match(message) and not _CONSEQUENCE.search(message):
            return RootCause(failure=Failure.OTHER, sentence=f"{message.rstrip('.')}.", line=message)
    return None


def find_fatal(log: str) -> str | None:
    """The first line by which a process of the engine says that it cannot go on, else None.

    The process that was started first may live on for long after such a line.
    """
    return next((line for line in log.splitlines() if _FATAL.search(line)), None)


_PREFIX = re.compile(r"^(?:\([^)]* pid=\d+\) ?)?(?:[A-Z]+ \d\d-\d\d [\d:]+ \[[^\]]*\] ?)?")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception): \S")
_CONSEQUENCE = re.compile(
    r"Engine core initialization failed|initialization failed due to an exception|"
    r"EngineDeadError|CancelledError"
)
_FATAL = re.compile(
    r"EngineCore failed to start|WorkerProc failed to start|EngineCore encountered a fatal error|"
    r"Worker proc \S+ died unexpectedly|Engine core proc \S+ died unexpectedly|"
    r"Engine core initialization failed"
)


def _message(line: str) -> str:
    return _PREFIX.sub("", line).strip()
