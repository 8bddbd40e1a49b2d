"""A trajectory as a folder: every step with its packet, manifest, ids and times, one JSON line each.

Written while the turn runs, a line as soon as a step is complete and on the disk before the next one begins,
so what an interrupted run did is there; a torn last line is left out when the folder is opened again.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, TypeVar

from pydantic import JsonValue

from experiments.agent.callform import CallForm, Said
from experiments.agent.events import (
    AgentEvent,
    Answer,
    CallFinished,
    CallStarted,
    GaveUp,
    GaveUpReason,
    ToolFinished,
    ToolStarted,
)
from experiments.agent.refusals import RefusalReason
from experiments.framework.journal import Journal, read_lines, write_whole
from serving.assembler import AssemblyRequest, ContextManifest, ContextPolicy, Message, ToolSpec, Trajectory
from serving.assembler.record import Instant, Record
from serving.call import MeasuredCall
from serving.client import Exchange
from serving.errors import UsageError
from serving.redact import Redactor

RUN_FILE: Final = "run.json"
STEPS_FILE: Final = "steps.jsonl"
TRAJECTORY_FILE: Final = "trajectory.json"

PACKET_FIELDS: Final = frozenset({"messages", "tools", "prompt"})
"""Of a request's body: what a step keeps as its packet and its ids."""

_R = TypeVar("_R", bound=Record)


class SavedRun(Record):
    """What all steps have in common."""

    version: Literal[1] = 1
    task: str
    model: str
    policy: ContextPolicy
    faults: tuple[str, ...] = ()
    started_at: Instant


class SavedTool(Record):
    """One call of a step and what came of it."""

    call_id: str
    name: str
    early: bool
    """Whether it started while the model still wrote."""
    ok: bool
    refusal: RefusalReason | None
    attempts: int


class SavedSpan(Record):
    """Prompt tokens `start` to `end` (excluded) and the item they came from."""

    start: int
    end: int
    item_id: str


class SavedStep(Record):
    """One model call, and the tools that it led to."""

    number: int
    request: AssemblyRequest | None
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    manifest: ContextManifest
    prompt_ids: tuple[int, ...] | None
    """As rendered here; None where the template is not known."""
    spans: tuple[SavedSpan, ...] | None = None
    """Whose token each of them is."""
    predicted_cached_tokens: int | None
    first_break: str | None
    """Why the prompt left what was stored, in a word; None: it extends it, or nothing was stored."""
    form: CallForm
    exchange: dict[str, JsonValue]
    """`serving.client.Exchange`: output ids, usage and times. Its request is the body as sent but for `messages`,
    `tools` and `prompt`, which stand above."""
    replayable: bool
    """False: the model wrote a secret, so its text and ids were cut."""
    ran: tuple[SavedTool, ...]


class SavedEnd(Record):
    """How the turn ended, and all of its log."""

    reason: GaveUpReason | None
    """None: with an answer."""
    text: str
    trajectory: Trajectory


class OpenedRun(Record):
    """A folder, read again."""

    run: SavedRun
    steps: tuple[SavedStep, ...]
    end: SavedEnd | None
    """None: the run was interrupted."""


class TrajectoryWriter:
    """Writes one turn as its events come; raises `UsageError` for a folder that is in use."""

    def __init__(self, folder: Path, run: SavedRun, redactor: Redactor) -> None:
        require_free(folder)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / RUN_FILE, run.model_copy(update={"task": redactor.redact(run.task).text}))
        self._folder = folder
        self._steps = Journal(folder / STEPS_FILE)
        self._started: CallStarted | None = None
        self._finished: CallFinished | None = None
        self._early: dict[str, bool] = {}
        self._ran: list[SavedTool] = []

    def __enter__(self) -> TrajectoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._steps:
            self._flush()

    def take(self, event: AgentEvent) -> None:
        """Note one event; a step is written when the last of its calls has its result."""
        match event:
            case CallStarted():
                self._flush()
                self._started = event
            case CallFinished():
                self._finished = event
                self._flush_complete()
            case ToolStarted(call=call, early=early):
                self._early[call.id] = early
            case ToolFinished(call=call, outcome=outcome, refusal=refusal, attempts=attempts):
                self._ran.append(
                    SavedTool(
                        call_id=call.id,
                        name=call.name,
                        early=self._early.get(call.id, False),
                        ok=outcome.ok,
                        refusal=refusal,
                        attempts=attempts,
                    )
                )
                self._flush_complete()
            case Answer(text=text, trajectory=trajectory):
                self._end(SavedEnd(reason=None, text=text, trajectory=trajectory))
            case GaveUp(reason=reason, sentence=sentence, trajectory=trajectory):
                self._end(SavedEnd(reason=reason, text=sentence, trajectory=trajectory))

    def _end(self, end: SavedEnd) -> None:
        self._flush()
        _write(self._folder / TRAJECTORY_FILE, end)

    def _flush_complete(self) -> None:
        if self._finished is not None and len(self._ran) == len(self._finished.said.calls):
            self._flush()

    def _flush(self) -> None:
        """Write the step whose call has finished, were its tools cut off or not; one whose call did not is no step."""
        if self._started is not None and self._finished is not None:
            step = _step(self._started, self._finished, tuple(self._ran))
            self._steps.append(step.model_dump(mode="json"))
        self._started = self._finished = None
        self._early, self._ran = {}, []


def require_free(folder: Path) -> None:
    """Raise `UsageError` unless the folder is new or empty; of a run it says whether that came to its end."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    held = "is in use"
    if (folder / RUN_FILE).is_file() and (folder / STEPS_FILE).is_file():
        ended = (folder / TRAJECTORY_FILE).exists()
        held = f"holds {'a run' if ended else 'a run that was interrupted'} (`ctxlab trajectory` opens it)"
    raise UsageError(f"Expected a new or empty folder to save into, but {folder} {held}; name another.")


def open_run(folder: Path) -> OpenedRun:
    """Read a folder that `TrajectoryWriter` wrote; the error says which file is missing or damaged.

    Raises `UsageError` for what is no such folder, and `LabError` for a line of it that no interruption leaves.
    """
    run = _read(SavedRun, folder / RUN_FILE)
    steps = tuple(
        _checked(SavedStep, value, f"{folder / STEPS_FILE}, line {number}")
        for number, value in enumerate(read_lines(folder / STEPS_FILE), 1)
    )
    ended = folder / TRAJECTORY_FILE
    return OpenedRun(run=run, steps=steps, end=_read(SavedEnd, ended) if ended.exists() else None)


def _step(started: CallStarted, finished: CallFinished, ran: tuple[SavedTool, ...]) -> SavedStep:
    call = finished.call
    measured = call if isinstance(call, MeasuredCall) else None
    miss = None if measured is None else measured.miss
    finding = None if miss is None or miss.broken is None else miss.finding
    return SavedStep(
        number=started.iteration,
        request=started.request,
        messages=started.packet.messages,
        tools=started.packet.tools,
        manifest=started.packet.manifest,
        prompt_ids=None if started.rendered is None else started.rendered.token_ids,
        predicted_cached_tokens=None if started.prediction is None else started.prediction.cached_tokens,
        first_break=None if finding is None else finding.cause.value,
        form=finished.said.form,
        spans=None
        if started.rendered is None
        else tuple(
            SavedSpan(start=span.start, end=span.end, item_id=span.item_id) for span in started.rendered.spans
        ),
        exchange=_without_packet(kept(call.exchange, finished.said, finished.cut)),
        replayable=not finished.cut,
        ran=ran,
    )


def kept(exchange: Exchange, said: Said, cut: tuple[str, ...]) -> Exchange:
    """The exchange as it may be kept: what the model wrote of a secret is in no text and in no ids."""
    if not cut:
        return exchange
    update = {
        "output_token_ids": None,
        "text": said.text,
        "reasoning": said.reasoning or "",
        "tool_calls": (),
    }
    return exchange.model_copy(update=update)


def kept_failure(exchange: Exchange, redactor: Redactor) -> Exchange:
    """The same for a call that failed: what came of it was never read as a message."""
    parts = (exchange.text, exchange.reasoning, *(call.arguments for call in exchange.tool_calls))
    if not any(redactor.redact(part).removed for part in parts):
        return exchange
    update = {
        "output_token_ids": None,
        "text": redactor.redact(exchange.text).text,
        "reasoning": redactor.redact(exchange.reasoning).text,
        "tool_calls": (),
    }
    return exchange.model_copy(update=update)


def _without_packet(exchange: Exchange) -> dict[str, JsonValue]:
    rest = {name: value for name, value in exchange.request.items() if name not in PACKET_FIELDS}
    bare: dict[str, JsonValue] = json.loads(exchange.model_copy(update={"request": rest}).model_dump_json())
    return bare


def _write(path: Path, record: Record) -> None:
    write_whole(path, json.dumps(record.model_dump(mode="json"), indent=1).encode("ascii") + b"\n")


def _read(kind: type[_R], path: Path) -> _R:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}.") from error
    return _checked(kind, value, str(path))


def _checked(kind: type[_R], value: JsonValue, where: str) -> _R:
    try:
        return kind.model_validate(value)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
