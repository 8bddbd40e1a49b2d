"""Raw tool output, kept once and addressed by what it is; and the short text that stands for it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from pydantic import Field

from serving.assembler import ToolResult
from serving.assembler.record import Record, digest
from serving.errors import LabError, UsageError
from serving.stores.folder import WriteOnceFolder
from serving.text import require_unicode_text

_CONTENT: Final = re.compile(r"artifact://sha256/([0-9a-f]{64})", re.ASCII)
_TOOL_RUN: Final = re.compile(r"toolrun://[\w.~-]+(/[\w.~-]+)*", re.ASCII)
_LONGEST_REFERENCE: Final = 512

_OBJECTS: Final = "objects"
_REFERENCES: Final = "references"
_REPLACEMENTS: Final = "replacements"


class ArtifactRef(Record):
    """An artifact that was in the store when this was made."""

    uri: str
    """`artifact://sha256/<hex>`, or the tool run that produced it: `toolrun://req-42/step-3`."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)


class ArtifactStore:
    """Artifacts under one folder; safe to share between processes, and to kill at any moment.

    A folder holds one tenant's artifacts: who can name a reference can read it.
    """

    def __init__(self, root: Path) -> None:
        self._folder = WriteOnceFolder(root)

    def put(self, content: bytes | str, *, reference: str | None = None) -> ArtifactRef:
        """Keep `content` (text as UTF-8) and return a reference that resolves from now on.

        The same content under the same reference may be put again. `UsageError` for a reference that is no
        `toolrun://…`, and `LabError` for one that already means something else: what a model was told would
        change its meaning.
        """
        data = require_unicode_text(content, "the artifact").encode() if isinstance(content, str) else content
        sha256 = hashlib.sha256(data).hexdigest()
        uri = f"artifact://sha256/{sha256}" if reference is None else _tool_run(reference)
        kept = ArtifactRef(uri=uri, sha256=sha256, size_bytes=len(data))
        if not self._folder.publish(_OBJECTS, sha256, data):
            self._object(sha256)
        # Content first: a reference that exists always leads somewhere.
        if reference is not None and not self._folder.publish(
            _REFERENCES, digest(uri), kept.model_dump_json().encode()
        ):
            standing = self._named(uri)
            if standing != kept:
                raise LabError(
                    f"{uri} already stands for other content; expected the same bytes again or a reference of "
                    "its own for every tool run."
                )
        return kept

    def resolve(self, reference: str) -> ArtifactRef | None:
        """The artifact behind a reference, its content checked; None when the store has no such artifact.

        `UsageError` for a text that is no reference at all, `LabError` for damaged content.
        """
        if found := _CONTENT.fullmatch(reference):
            data = self._object(found[1])
            return None if data is None else ArtifactRef(uri=reference, sha256=found[1], size_bytes=len(data))
        named = self._named(_tool_run(reference))
        return named if named is not None and self._object(named.sha256) is not None else None

    def get(self, reference: str) -> bytes:
        """The content behind a reference; `LabError` when it does not resolve."""
        data = self._object(self._resolved(reference).sha256)
        if data is None:
            raise _unresolved(reference)
        return data

    def freeze(self, reference: str, text: str) -> str:
        """The text that stands for an artifact: `text` at the first call, the same bytes ever after.

        A later `text` is not looked at, so bytes that were sent stay as they were, also after a restart and
        when two processes ask at once. `LabError` when the reference does not resolve: the model is never
        told of an archive that was not written.
        """
        if not text:
            raise UsageError("Expected a text that stands for the artifact, but it is empty; write one.")
        data = require_unicode_text(text, "the text that stands for the artifact").encode()
        uri = self._resolved(reference).uri
        self._folder.publish(_REPLACEMENTS, digest(uri), data)
        frozen = self.frozen(uri)
        if frozen is None:
            raise LabError(
                f"Expected the frozen text of {uri}, but it vanished; leave the store's files alone."
            )
        return frozen

    def frozen(self, reference: str) -> str | None:
        """The text that was frozen for a reference; None when it never appeared."""
        uri = reference if _CONTENT.fullmatch(reference) else _tool_run(reference)
        data = self._folder.read(_REPLACEMENTS, digest(uri))
        return None if data is None else data.decode()

    def tool_result(self, call_id: str, reference: str, text: str, *, failed: bool = False) -> ToolResult:
        """What the model reads in place of the raw output: the frozen text, and where the rest is kept."""
        content = self.freeze(reference, text)
        return ToolResult(call_id=call_id, content=content, failed=failed, artifact_ref=reference)

    def _resolved(self, reference: str) -> ArtifactRef:
        found = self.resolve(reference)
        if found is None:
            raise _unresolved(reference)
        return found

    def _named(self, uri: str) -> ArtifactRef | None:
        data = self._folder.read(_REFERENCES, digest(uri))
        return None if data is None else ArtifactRef.model_validate_json(data)

    def _object(self, sha256: str) -> bytes | None:
        data = self._folder.read(_OBJECTS, sha256)
        if data is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise LabError(
                f"Expected the content of artifact://sha256/{sha256}, but {self._folder.root / _OBJECTS / sha256} "
                "holds other bytes; remove that file and put the content again."
            )
        return data


def _tool_run(reference: str) -> str:
    sound = len(reference) <= _LONGEST_REFERENCE and _TOOL_RUN.fullmatch(reference)
    if not sound or {".", ".."} & set(reference.split("/")):
        raise UsageError(
            f"Expected artifact://sha256/<64 hex digits> or toolrun://<run>/<step> (letters, digits and ._~-), "
            f"but got {reference[:80]!r}."
        )
    return reference


def _unresolved(reference: str) -> LabError:
    return LabError(f"{reference} does not resolve; put the artifact before its reference is shown.")
