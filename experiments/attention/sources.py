"""What `ctxlab attend` is asked to look at: a text, a file of messages, or a call of a run folder."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from experiments.attention.recorded import RecordedReading, read_exchange
from experiments.framework.manifests import read_manifests
from experiments.framework.records import RECORDS, read_records, read_run
from serving.attention import Reading, Segment, SegmentKind, build_segments, read_body
from serving.attention.outputs import output_marks, output_owners
from serving.chat import ChatRenderer
from serving.client import Exchange
from serving.errors import UsageError

MAX_FILE_BYTES: Final = 64 << 20

_RECORD: Final = re.compile(r"(?P<folder>.+?)(?::(?P<record>[0-9]+)(?:\.(?P<call>[0-9]+))?)?")


@dataclass(frozen=True, slots=True)
class MessagesFile:
    """Messages and tools as an OpenAI chat body has them."""

    name: str
    messages: list[dict[str, JsonValue]]
    tools: list[dict[str, JsonValue]]

    def read(self, renderer: ChatRenderer, output: tuple[int, ...] = ()) -> RecordedReading:
        """Every message a segment; thinking, calls and a status bar apart."""
        return RecordedReading(read_body(self.messages, self.tools, renderer, output), None)


@dataclass(frozen=True, slots=True)
class PromptText:
    """A text as it stands, without a template."""

    name: str
    text: str

    def read(self, renderer: ChatRenderer, output: tuple[int, ...] = ()) -> RecordedReading:
        """One segment beside the sink."""
        ids = renderer.tokenizer.encode(self.text).ids
        if not ids:
            raise UsageError("Expected a prompt of at least one token, got an empty one; give it a text.")
        text = Segment(id="text", label="text", kind=SegmentKind.TEXT)
        owners = [text] * len(ids) + output_owners(output, output_marks(renderer.tokenizer))
        segments = build_segments(owners, prompt_tokens=len(ids))
        return RecordedReading(Reading((*ids, *output), segments), None)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of a run folder."""

    name: str
    folder: Path
    exchange: Exchange

    def read(self, renderer: ChatRenderer, output: tuple[int, ...] = ()) -> RecordedReading:
        """The recorded ids; the answer is the recorded one, so `output` is empty."""
        assert not output
        wanted = self.exchange.manifest_id
        manifest = next((one for one in read_manifests(self.folder) if one.manifest_id == wanted), None)
        return read_exchange(self.exchange, renderer, manifest)


Source = MessagesFile | PromptText | RecordedCall


def messages_file(path: Path) -> MessagesFile:
    """A JSON file: a list of messages, or an object with `messages` and perhaps `tools`."""
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise UsageError(f"Expected at most {MAX_FILE_BYTES >> 20} MiB in {path}, got {size:,} bytes.")
        given = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"Expected a file of messages at {path}, found none.") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"Expected JSON in {path}, got something else ({error}).") from error
    body = {"messages": given} if isinstance(given, list) else given
    if not isinstance(body, dict):
        raise UsageError(f"Expected a list of messages or a chat body in {path}, got {type(given).__name__}.")
    messages, tools = body.get("messages"), body.get("tools") or []
    for what, listed in (("messages", messages), ("tools", tools)):
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise UsageError(f"Expected {what!r} in {path} to be a list of objects, as a chat body has them.")
    if not messages:
        raise UsageError(f"Expected at least one message in {path}, got none.")
    if bad := next((one for one in messages if not isinstance(one.get("role"), str)), None):
        raise UsageError(f"Expected a role in every message of {path}, and one has {sorted(bad)}.")
    return MessagesFile(path.stem, messages, tools)


def recorded_call(text: str) -> RecordedCall:
    """`FOLDER`, `FOLDER:RECORD` or `FOLDER:RECORD.CALL`: lines and calls count from 0; without a call, the last."""
    found = _RECORD.fullmatch(text)
    if found is None:
        raise UsageError(f"Expected FOLDER:RECORD.CALL, got {text!r}, such as runs/my-run:3.0.")
    folder, number = Path(found["folder"]), int(found["record"] or 0)
    read_run(folder)  # says what is wrong with a folder that is none
    record = next(islice(read_records(folder), number, None), None)
    if record is None:
        count = sum(1 for _ in read_records(folder, with_exchanges=False))
        raise UsageError(
            f"Expected a record below {count} of {folder / RECORDS}, got {number}; they count from 0."
        )
    call = len(record.exchanges) - 1 if found["call"] is None else int(found["call"])
    if not 0 <= call < len(record.exchanges):
        raise UsageError(
            f"Expected a call below {len(record.exchanges)} of record {number} ({record.arm}), got {max(call, 0)}; "
            "they count from 0."
        )
    return RecordedCall(f"{record.arm}, call {call}", folder, record.exchanges[call])


def model_of(source: Source) -> str | None:
    """The model that a recorded call was made with; None for what no model has read yet."""
    if not isinstance(source, RecordedCall):
        return None
    model = read_run(source.folder).identity.base.get("engine.model")
    return model if isinstance(model, str) else None
