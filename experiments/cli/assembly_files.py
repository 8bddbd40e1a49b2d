"""Requests, policies and saved assemblies as files: read with one sentence for whatever is wrong, and written."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from pydantic import Field, JsonValue

from experiments.faults import FaultContext, build_faults
from experiments.faults.base import reasoning_by_call
from serving.assembler import (
    AssemblyRequest,
    ContextItem,
    ContextManifest,
    ContextPolicy,
    Draft,
    DraftMessage,
    DraftTool,
    Fault,
    HandOff,
    Message,
    Packet,
    PacketSpan,
    Region,
    Rendered,
    TokenSpan,
    ToolSpec,
)
from serving.assembler.gates import in_scope
from serving.assembler.record import Record
from serving.assembler.report import packet_digest
from serving.errors import UsageError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MOST_BYTES: Final = 32_000_000
"""Of one file: a request far beyond any window is a mistake, and reading it would only take memory."""

MOST_ITEMS: Final = 50_000
"""Of one request; each takes at least a token, and a window of candidates was ranked and cut before."""

MOST_DIGITS: Final = 18
"""Of a whole number; larger ones do not fit where sizes are multiplied."""

REQUEST_FILE, POLICY_FILE, RENDERER_FILE = "request.json", "policy.json", "renderer.json"
FAULTS_FILE: Final = "faults.json"
MANIFEST_FILE, PACKET_FILE, RENDERED_FILE = "manifest.json", "packet.json", "rendered.json"


class RendererNote(Record):
    """Which renderer counted: the estimate (given sizes, else characters/4), or the files of a model."""

    kind: Literal["estimate", "model"]
    model: str | None = None
    """The name or folder that was given."""
    sizes: dict[str, int] = Field(default_factory=dict)
    """Of the estimate: the tokens that items named themselves, by id."""


class FaultsNote(Record):
    """The faults that were applied, in order; all else that they read follows from the request."""

    names: tuple[str, ...] = ()


class PacketText(Record):
    """A packet without its manifest, which has a file of its own."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    spans: tuple[PacketSpan, ...]


class RenderedIds(Record):
    """A rendering without its text."""

    token_ids: tuple[int, ...]
    spans: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True)
class Saved:
    """What a folder or file holds of one assembly; None: not there."""

    manifest: ContextManifest
    request: AssemblyRequest | None = None
    policy: ContextPolicy | None = None
    renderer: RendererNote | None = None
    faults: tuple[str, ...] = ()
    """Names; also empty where none were kept."""
    packet: Packet | None = None
    rendered: Rendered | None = None


def read_request(path: Path) -> AssemblyRequest:
    """The request in a JSON file; `UsageError` names the file, the item and the field."""
    return parsed(AssemblyRequest, read_json(path), path)


def with_window(request: AssemblyRequest, window: int) -> AssemblyRequest:
    """The same request for a server with another window; `UsageError` where nothing is left to fill."""
    return AssemblyRequest.model_validate({**dict(request), "window": window})


def given_sizes(request: AssemblyRequest) -> dict[str, int]:
    """The tokens that items name themselves, of items in scope: no other id may decide any output."""
    items = (*request.candidates, *request.history, *request.tools)
    return {
        item.id: item.tokens for item in items if item.tokens is not None and in_scope(item, request.context)
    }


def read_policy(name_or_path: str) -> ContextPolicy:
    """A named policy, or one from a TOML or JSON file; `UsageError` names the file and the field."""
    named = policy_files()
    if name_or_path in named:
        return _policy(named[name_or_path].read_text(encoding="utf-8"), Path(f"{name_or_path}.toml"))
    path = Path(name_or_path)
    if not path.exists():
        raise UsageError(
            f"Expected a named policy ({', '.join(named)}) or a TOML file, but {name_or_path} is neither."
        )
    if path.suffix == ".json":
        return parsed(ContextPolicy, read_json(path), path)
    return _policy(_text(path), path)


def policy_files() -> dict[str, Traversable]:
    """The named policies, `default` first."""
    folder = files("experiments.cli").joinpath("policies")
    found = {
        file.name.removesuffix(".toml"): file for file in folder.iterdir() if file.name.endswith(".toml")
    }
    return dict(sorted(found.items(), key=lambda pair: (pair[0] != "default", pair[0])))


def faults_for(names: Sequence[str], request: AssemblyRequest) -> tuple[Fault, ...]:
    """The named faults for `request`: its call number and reasoning are those of its history.

    A request knows no time but its own, so earlier calls count as a minute apart. `UsageError` names a
    fault that does not exist.
    """
    reasoning = reasoning_by_call(request)
    call, now = len(reasoning), request.context.now
    try:
        times = tuple(now - timedelta(minutes=call - earlier) for earlier in range(call))
    except OverflowError as error:
        raise UsageError(f"Expected a time later than year 1 for {call} calls, but {now} came.") from error
    masked = frozenset(request.carry.masked) or None
    return build_faults(
        names, FaultContext(call, now, seed=0, times=times, reasoning=reasoning, masked=masked)
    )


def read_json(path: Path) -> JsonValue:
    """A JSON document; `UsageError` for what is not one, repeats a field, or is too large."""
    text = _text(path)
    try:
        value: JsonValue = json.loads(
            text, object_pairs_hook=_without_repeats, parse_constant=_no_constant, parse_int=_no_giant
        )
        # A lone surrogate is legal JSON and can be neither hashed nor sent.
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path} is not JSON: {error.msg}, at line {error.lineno} column {error.colno}."
        ) from error
    except UnicodeEncodeError as error:
        raise UsageError(f"{path} holds a text that UTF-8 cannot carry (a lone surrogate).") from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply to be read.") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON that can be read: {str(error).split(';')[0]}.") from error
    return value


def read_saved(path: Path) -> Saved:
    """A manifest file, or a folder that `ctxlab assemble --save` wrote, whatever is left of it."""
    if not path.is_dir():
        return Saved(parsed(ContextManifest, read_json(path), path))
    if not (path / MANIFEST_FILE).exists():
        raise UsageError(
            f"{path} holds no {MANIFEST_FILE}; give a folder that `ctxlab assemble --save` wrote, or a manifest."
        )
    manifest = parsed(ContextManifest, read_json(path / MANIFEST_FILE), path / MANIFEST_FILE)
    packet = optional(PacketText, path / PACKET_FILE)
    if packet is not None and _sha256(packet) != manifest.packet_sha256:
        raise UsageError(
            f"{path / PACKET_FILE} is not the packet that {MANIFEST_FILE} describes: their hashes differ. "
            "One of them was edited; restore it, or remove the packet."
        )
    ids = optional(RenderedIds, path / RENDERED_FILE)
    return Saved(
        manifest,
        optional(AssemblyRequest, path / REQUEST_FILE),
        optional(ContextPolicy, path / POLICY_FILE),
        optional(RendererNote, path / RENDERER_FILE),
        (optional(FaultsNote, path / FAULTS_FILE) or FaultsNote()).names,
        Packet(messages=packet.messages, tools=packet.tools, spans=packet.spans, manifest=manifest)
        if packet
        else None,
        Rendered(ids.token_ids, "", tuple(TokenSpan(*span) for span in ids.spans)) if ids else None,
    )


def save(
    folder: Path,
    request: AssemblyRequest,
    policy: ContextPolicy,
    renderer: RendererNote,
    outcome: Packet | HandOff,
    rendered: Rendered | None,
    faults: Sequence[str] = (),
) -> None:
    """Write everything a replay needs into a new or empty folder; a hand-off has no packet to write."""
    documents: dict[str, Record] = {
        REQUEST_FILE: request,
        POLICY_FILE: policy,
        RENDERER_FILE: renderer,
        MANIFEST_FILE: outcome.manifest,
    }
    if faults:
        documents[FAULTS_FILE] = FaultsNote(names=tuple(faults))
    if isinstance(outcome, Packet):
        documents[PACKET_FILE] = PacketText(
            messages=outcome.messages, tools=outcome.tools, spans=outcome.spans
        )
    if rendered is not None:
        documents[RENDERED_FILE] = RenderedIds(
            token_ids=rendered.token_ids,
            spans=tuple((span.start, span.end, span.item_id) for span in rendered.spans),
        )
    write_documents(folder, documents)


def write_documents(folder: Path, documents: Mapping[str, Record]) -> None:
    """Write each document as JSON under its place in the folder; `UsageError` unless that is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"Expected a new or empty folder to save into, but {folder} is in use; name another."
        )
    for place, document in documents.items():
        file = folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document.model_dump_json(indent=1) + "\n", encoding="utf-8")


_R = TypeVar("_R", bound=Record)


def optional(kind: type[_R], path: Path) -> _R | None:
    """The document in a file; None where there is no such file."""
    return parsed(kind, read_json(path), path) if path.exists() else None


def parsed(kind: type[_R], value: JsonValue, path: Path) -> _R:
    """A document of `kind` from JSON; `UsageError` names the file, for a request the item, and the field."""
    if not isinstance(value, dict):
        raise UsageError(
            f"{path}: expected a JSON object with the fields of {kind.__name__}, but a list or a "
            f"plain value came."
        )
    if kind is AssemblyRequest:
        count = sum(len(group) for group in value.values() if isinstance(group, list))
        if count > MOST_ITEMS:
            raise UsageError(
                f"{path} has {count:,} items, but at most {MOST_ITEMS:,} are read; rank and cut the candidates "
                "first."
            )
    try:
        return kind.model_validate(value)
    except UsageError as error:
        where = _item_at_fault(value) if kind is AssemblyRequest else ""
        if kind is not AssemblyRequest and not str(error).startswith(kind.__name__):
            where = f"expected a {kind.__name__}, but "
        raise UsageError(f"{path}: {where}{error}") from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply to be read.") from error


def _sha256(packet: PacketText) -> str:
    messages = tuple(DraftMessage(message, (), Region.TRAJECTORY) for message in packet.messages)
    return packet_digest(Draft(messages, tuple(DraftTool(tool, "") for tool in packet.tools)))


def _item_at_fault(request: dict[str, JsonValue]) -> str:
    """`candidates[3] (id x): ` of the first item that is no item, since its own sentence knows no place."""
    for group in ("candidates", "history", "tools"):
        items = request.get(group)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            try:
                ContextItem.model_validate(item)
            except UsageError:
                named = item.get("id") if isinstance(item, dict) else None
                return f"{group}[{index}]{f' (id {named})' if isinstance(named, str) else ''}: "
    return ""


def _policy(text: str, path: Path) -> ContextPolicy:
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.") from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply to be read.") from error
    return parsed(ContextPolicy, value, path)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(data) > MOST_BYTES:
        raise UsageError(
            f"{path} has more than {MOST_BYTES:,} bytes, the most that is read; give a smaller one."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: byte {error.start} is {data[error.start]:#04x}.") from error


def _without_repeats(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the field '{twice}' comes twice in one object")
    return made


def _no_giant(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits means nothing here")
    return int(digits)


def _no_constant(name: str) -> JsonValue:
    raise ValueError(f"{name} is not a JSON number")
