"""A capture as one file: a zip of plain arrays (readable with `numpy.load`) and a JSON description.

Nothing in it is code, and every size is checked against the description before a byte is unpacked, so a file
of a stranger can be opened. Equal captures give equal bytes.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from serving.assembler.record import Record
from serving.attention.capture import Capture, ModelIdentity
from serving.attention.options import CaptureOptions
from serving.attention.segments import Segments
from serving.errors import LabError, UsageError

FORMAT: Final = "ctxlab-attention"
VERSION: Final = 1
SUFFIX: Final = ".attention.npz"

MAX_BYTES: Final = 8 << 30
"""Of all arrays, unpacked; a capture above it is refused on both ways."""

_META: Final = "capture.json"
_MAX_META_BYTES: Final = 64 << 20
_MAX_HEADER_BYTES: Final = 4096
_FLOATS: Final = np.dtype("<f4")
_INTEGERS: Final = np.dtype("<i8")
_DATE: Final = (1980, 1, 1, 0, 0, 0)


class _Meta(Record):
    """What the arrays mean, and how large they are."""

    format: Literal["ctxlab-attention"] = FORMAT
    version: Literal[1] = VERSION
    model: ModelIdentity
    options: CaptureOptions
    segments: Segments
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    rows: int = Field(ge=1)
    pieces: tuple[str, ...] | None
    arrays: tuple[str, ...]


def save(capture: Capture, path: Path) -> None:
    """Write the capture; the file is complete or not there. Raises: UsageError beyond `MAX_BYTES`."""
    arrays = {name: array for name in _NAMES if (array := getattr(capture, name)) is not None}
    total = sum(array.nbytes for array in arrays.values())
    if total > MAX_BYTES:
        raise UsageError(
            f"Expected at most {MAX_BYTES >> 30} GiB of arrays in one file, got {total / (1 << 30):.1f}; store "
            "fewer rows (rows='pooled'), layers or full rows."
        )
    meta = _Meta(
        model=capture.model,
        options=capture.options,
        segments=capture.segments,
        layers=capture.layers,
        heads=capture.heads,
        rows=len(capture.row_starts),
        pieces=capture.pieces,
        arrays=tuple(arrays),
    )
    partial = path.with_name(f".{path.name}.partial")
    try:
        with zipfile.ZipFile(partial, "w") as archive:
            with archive.open(_entry(_META), "w") as file:
                file.write(meta.model_dump_json().encode())
            with archive.open(_entry("token_ids.npy"), "w") as file:
                _write(file, np.asarray(capture.token_ids, dtype=_INTEGERS))
            for name, array in arrays.items():
                with archive.open(_entry(f"{name}.npy"), "w", force_zip64=True) as file:
                    _write(file, array)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_capture(path: Path) -> Capture:
    """Read a capture. Raises: LabError for a file that is none, is damaged, or is of a later version."""
    try:
        with zipfile.ZipFile(path) as archive:
            meta = _read_meta(archive, path)
            shapes = _expected_shapes(meta)
            if sum(8 * prod(shape) for shape in shapes.values()) > 2 * MAX_BYTES:
                raise _bad(path, f"arrays of at most {MAX_BYTES >> 30} GiB", "a description of more")
            missing = set(_REQUIRED) - set(meta.arrays)
            unknown = set(meta.arrays) - set(_NAMES)
            if missing or unknown:
                raise _bad(
                    path, "the arrays of a capture", f"{sorted(missing)} missing, {sorted(unknown)} more"
                )
            arrays = {name: _read(archive, path, name, shapes[name]) for name in ("token_ids", *meta.arrays)}
    except _UNREADABLE as error:
        raise _bad(path, "a capture file", f"a file that cannot be read ({error})") from error
    return _assembled(meta, arrays)


_UNREADABLE: Final = (OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error)
"""What `zipfile` raises for a file that is cut, altered, encrypted, or of another compression."""


def _assembled(meta: _Meta, arrays: Mapping[str, NDArray[Any]]) -> Capture:
    found: dict[str, Any] = {name: arrays.get(name) for name in _NAMES}
    return Capture(
        model=meta.model,
        options=meta.options,
        segments=meta.segments,
        token_ids=tuple(arrays["token_ids"].tolist()),
        layers=meta.layers,
        heads=meta.heads,
        pieces=meta.pieces,
        **found,
    )


def _expected_shapes(meta: _Meta) -> dict[str, tuple[int, ...]]:
    tokens, parts = meta.segments.tokens, len(meta.segments.segments)
    group = meta.model.num_heads // meta.model.num_kv_heads
    each, rows = (len(meta.layers), len(meta.heads)), meta.rows
    fine = -(-tokens // -(-tokens // (2 * meta.options.heatmap_bins)))
    coarse = -(-fine // 2)
    return {
        "token_ids": (tokens,),
        "row_starts": (rows,),
        "row_ends": (rows,),
        "rows_in": (parts,),
        "mass": (*each, rows, parts),
        "sink": (*each, rows),
        "between": (*each, parts, parts),
        "baseline": (*each, parts, parts),
        "entropy": (*each, rows),
        "peak": (*each, rows),
        "distance": (*each, rows),
        "distance_sd": (*each, rows),
        "received": (*each, tokens),
        "heatmap": (*each, coarse, coarse),
        "heatmap_mean": (each[0], fine, fine),
        "heatmap_max": (each[0], fine, fine),
        "full": (*each, len(meta.options.full_rows), tokens),
        "queries": (*each, len(meta.options.keep_rows), meta.model.head_dim),
        "keys": (each[0], len({head // group for head in meta.heads}), tokens, meta.model.head_dim),
        "scales": (each[0],),
    }


_REQUIRED: Final = ("row_starts", "row_ends", "rows_in", "mass", "sink", "between")
_NAMES: Final = (
    *_REQUIRED,
    "baseline",
    "entropy",
    "peak",
    "distance",
    "distance_sd",
    "received",
    "heatmap",
    "heatmap_mean",
    "heatmap_max",
    "full",
    "queries",
    "keys",
    "scales",
)
_COUNTS: Final = frozenset({"token_ids", "row_starts", "row_ends", "rows_in"})
"""The arrays of whole numbers."""


def _read_meta(archive: zipfile.ZipFile, path: Path) -> _Meta:
    try:
        info = archive.getinfo(_META)
    except KeyError:
        raise _bad(path, f"{_META} inside it", "an archive without") from None
    if info.file_size > _MAX_META_BYTES:
        raise _bad(path, f"a description of at most {_MAX_META_BYTES >> 20} MiB", f"{info.file_size} bytes")
    try:
        facts = json.loads(archive.read(info))
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"JSON in {_META}", f"something else ({error})") from error
    named = facts if isinstance(facts, dict) else {}
    if named.get("format") != FORMAT or named.get("version") != VERSION:
        got = f"{named.get('format')!r} version {named.get('version')!r}"
        raise _bad(path, f"{FORMAT} version {VERSION}", f"{got}; open it with the release that wrote it")
    try:
        return _Meta.model_validate(facts)
    except UsageError as error:
        raise _bad(path, "the description of a capture", str(error)) from error


def _read(archive: zipfile.ZipFile, path: Path, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    kind = _INTEGERS if name in _COUNTS else _FLOATS
    size = prod(shape) * kind.itemsize
    try:
        info = archive.getinfo(f"{name}.npy")
    except KeyError:
        raise _bad(path, f"the array {name}", "an archive without it") from None
    if info.file_size > size + _MAX_HEADER_BYTES:
        raise _bad(path, f"{size} bytes of {name}", f"{info.file_size}")
    header = _header(shape, kind)
    data = archive.read(info)  # in whole, so that the archive's own checksum is compared
    if len(data) != len(header) + size or not data.startswith(header):
        raise _bad(path, f"{name} of shape {shape} and type {kind}", "another array")
    return np.frombuffer(bytearray(data), dtype=kind, offset=len(header)).reshape(shape)


def _write(file: IO[bytes], array: NDArray[Any]) -> None:
    kind = _FLOATS if array.dtype.kind == "f" else _INTEGERS
    file.write(_header(array.shape, kind))
    file.write(np.ascontiguousarray(array, dtype=kind).data)


def _header(shape: tuple[int, ...], kind: np.dtype[Any]) -> bytes:
    """The one header that this array may have (NPY format 1.0): nothing in a file is ever parsed."""
    text = f"{{'descr': '{kind.str}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    padded = text.ljust(-(-(len(text) + 11) // 64) * 64 - 11) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded


def _entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=_DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


def _bad(path: Path, expected: str, got: str) -> LabError:
    return LabError(f"Expected {expected} in {path}, got {got}.")
