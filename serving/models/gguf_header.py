"""Read a GGUF's header: the metadata and where every tensor lies, without touching the tensors.

`gguf.GGUFReader` wraps every token and merge in a field of its own and needs many seconds for a vocabulary of
150,000; this reader decodes them straight from the mapped file. The layout is the GGUF specification's
(version 2 and 3, little-endian): https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from serving.errors import LabError

# What one metadata entry may hold; an array holds items of one type.
GgufScalar = int | float | bool | str
GgufValue = GgufScalar | tuple[GgufScalar, ...]

_STRING, _ARRAY = 8, 9
_SCALARS: Mapping[int, struct.Struct] = MappingProxyType(
    {
        code: struct.Struct(f"<{letter}")
        for code, letter in zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True)
    }
)
_MAX_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor's place in the file."""

    name: str
    shape: tuple[int, ...]
    """Row-major, as numpy and safetensors have it: the reverse of the file's order."""
    quantization: int
    """The value of `gguf.GGMLQuantizationType`."""
    offset: int
    """Bytes from the start of the file."""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a GGUF says before its tensors begin."""

    metadata: Mapping[str, GgufValue]
    tensors: tuple[GgufTensor, ...]


def read_gguf_header(path: Path) -> GgufHeader:
    """Read the header of the GGUF at `path`; raises `LabError` when it is no GGUF, or a torn one."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _parse(view)
    except (ValueError, struct.error, OverflowError) as error:
        raise LabError(
            f"Expected a GGUF of version 2 or 3 in {path}, but its header cannot be read: {error}; "
            f"get the file again."
        ) from error


def _parse(view: mmap.mmap) -> GgufHeader:
    cursor = _Cursor(view)
    if cursor.take(4) != b"GGUF":
        raise ValueError("the first four bytes are not 'GGUF'")
    version = cursor.scalar(4)
    if version not in (2, 3):
        raise ValueError(f"version {version}")
    tensor_count, entry_count = int(cursor.scalar(10)), int(cursor.scalar(10))
    metadata: dict[str, GgufValue] = {}
    for _ in range(entry_count):
        key = cursor.text()
        metadata[key] = cursor.value(int(cursor.scalar(4)))
    described = [cursor.tensor() for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0:
        raise ValueError(f"alignment {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    tensors = tuple(
        GgufTensor(name, shape, quantization, start + offset)
        for name, shape, quantization, offset in described
    )
    return GgufHeader(MappingProxyType(metadata), tensors)


class _Cursor:
    """A position in the mapped file; every step checks that the bytes are there."""

    def __init__(self, view: mmap.mmap) -> None:
        self.view = view
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.view):
            raise ValueError(f"{count} bytes expected at {self.at}, but the file has {len(self.view)}")
        piece = self.view[self.at : end]
        self.at = end
        return piece

    def scalar(self, code: int) -> int | float | bool:
        layout = _SCALARS[code]
        (value,) = layout.unpack(self.take(layout.size))
        assert isinstance(value, int | float)
        return value

    def text(self) -> str:
        return self.take(int(self.scalar(10))).decode("utf-8")

    def value(self, code: int) -> GgufValue:
        if code != _ARRAY:
            return self._reader(code)()
        item_code, count = int(self.scalar(4)), int(self.scalar(10))
        read = self._reader(item_code)
        if count > len(self.view) - self.at:  # every item takes a byte or more: do not loop over a torn count
            raise ValueError(f"an array of {count} items in a file of {len(self.view)} bytes")
        return tuple([read() for _ in range(count)])

    def _reader(self, code: int) -> Callable[[], GgufScalar]:
        if code == _STRING:
            return self.text
        if code in _SCALARS:
            return lambda: self.scalar(code)
        raise ValueError(f"value type {code}")

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.text()
        dimensions = int(self.scalar(4))
        if not 1 <= dimensions <= _MAX_DIMENSIONS:
            raise ValueError(f"tensor {name} with {dimensions} dimensions")
        shape = tuple(int(self.scalar(10)) for _ in range(dimensions))
        return name, shape[::-1], int(self.scalar(4)), int(self.scalar(10))
