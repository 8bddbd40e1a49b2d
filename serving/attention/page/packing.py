"""Arrays for a browser: 8-bit logarithms, lower triangles, and one compressed run of bytes that holds them all."""

from __future__ import annotations

import base64
import gzip
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from serving.attention.capture import Floats

DECADES: Final = 5
"""Orders of magnitude below 1 that 255 steps cover: a step is 4.6 %, so a value is off by 2.3 % at most."""


class Blob:
    """Collects typed arrays; each is named by where it lies, in the header that goes with the bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0

    def add(self, array: NDArray[np.generic]) -> JsonValue:
        """Where the array lies: offset, length in elements, type and shape."""
        data = np.ascontiguousarray(array)
        padding = -self._length % 8  # typed arrays begin at multiples of their element's size
        raw = data.astype(data.dtype.newbyteorder("<")).tobytes()
        place = self._length + padding
        self._parts += [bytes(padding), raw]
        self._length = place + len(raw)
        return {"at": place, "length": data.size, "type": _TYPES[data.dtype.name], "shape": list(data.shape)}

    def text(self) -> str:
        """All bytes, compressed (gzip, no clock in it) and in base64."""
        return base64.b64encode(gzip.compress(b"".join(self._parts), 6, mtime=0)).decode("ascii")


_TYPES: Final = {
    "uint8": "Uint8Array",
    "uint16": "Uint16Array",
    "uint32": "Uint32Array",
    "float32": "Float32Array",
}


def log_bytes(values: Floats) -> NDArray[np.uint8]:
    """Values of 0 … 1 as bytes: 255 is 1, 1 is 10^−DECADES, 0 is anything that is less."""
    with np.errstate(divide="ignore"):
        steps = np.rint(255 + np.log10(values) * (254 / DECADES))
    return np.clip(np.where(steps < 1, 0, steps), 0, 255).astype(np.uint8)


def linear_shorts(values: Floats) -> NDArray[np.uint16]:
    """Values of 0 … 1 in 65,535 equal steps."""
    return np.rint(np.clip(values, 0, 1) * 65535).astype(np.uint16)


def lower_triangle(maps: Floats) -> Floats:
    """[…, B, B] → […, B(B+1)/2]: row by row, each up to its diagonal; all that causal attention can fill."""
    rows, columns = np.tril_indices(maps.shape[-1])
    return maps[..., rows, columns]
