"""Long texts that repeat their words, kept as short text: what a run stores of manifests and exchanges."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Final

WINDOW: Final = 1 << 15
"""Bytes of an earlier text that deflate can point back to."""


class Packing:
    """The texts of one file, each compressed (zlib, in base64) against the first of them.

    The calls of a run have their tools, their instructions and most of their ids in common; so these are written
    once. Texts are unpacked in the file's order, and the first of them is needed for every other. Whether a text was
    compressed against another stands in its zlib header, so a file whose texts stand alone is read too.
    """

    def __init__(self) -> None:
        self._first: bytes | None = None

    def pack(self, text: str) -> str:
        """Compress a text against the first that stands in the file; tell `stands` once it is written too."""
        data = text.encode("utf-8", "surrogatepass")
        deflate = zlib.compressobj(9, zdict=self._first) if self._first else zlib.compressobj(9)
        return base64.b64encode(deflate.compress(data) + deflate.flush()).decode()

    def unpack(self, packed: str) -> str:
        """Give the next text back; raises `ValueError` for anything that `pack` did not make."""
        inflate = zlib.decompressobj(zdict=self._first) if self._first else zlib.decompressobj()
        try:
            data = inflate.decompress(base64.b64decode(packed, validate=True))
            text = data.decode("utf-8", "surrogatepass")
        except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
            raise ValueError(f"it is not compressed text ({error})") from error
        if not inflate.eof:
            raise ValueError("it is not compressed text (its end is missing)")
        self.stands(text)
        return text

    def stands(self, text: str) -> None:
        """Note that a text is in the file: later ones are packed against the first."""
        if self._first is None:
            self._first = text.encode("utf-8", "surrogatepass")[-WINDOW:]
