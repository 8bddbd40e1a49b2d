"""Long text that repeats its words, kept as short text: what a run stores of manifests and exchanges."""

from __future__ import annotations

import base64
import binascii
import zlib


def pack(text: str) -> str:
    """Compress a text (zlib) and write it in base64."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), 9)).decode()


def unpack(packed: str) -> str:
    """Give the text back; raises `ValueError` for anything that `pack` did not make."""
    try:
        return zlib.decompress(base64.b64decode(packed, validate=True)).decode("utf-8", "surrogatepass")
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"it is not compressed text ({error})") from error
