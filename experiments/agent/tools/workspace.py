"""`Workspace`: the root of a run's tools, and the folder in it that they stand in."""

from __future__ import annotations

import threading
from pathlib import Path

from experiments.agent.tools.folder import MAX_DEPTH, Folder
from experiments.agent.tools.outcome import Failure, ToolError


class Workspace:
    """A root and a working directory inside it; threads may share it. Raises `UsageError` for no folder.

    All file tools take paths relative to the working directory, so only calls that are made one after another
    can count on a change of it.
    """

    def __init__(self, root: Path) -> None:
        self._root = Folder(root)
        self._parts: tuple[str, ...] = ()
        self.changing = threading.Lock()
        """Held by tools that change files or the working directory, from their look to their last check."""

    @property
    def cwd(self) -> str:
        """The working directory as a path from the root, `/` for the root itself."""
        return "/" + "/".join(self._parts)

    def folder(self) -> Folder:
        """The working directory, out of which no path leads."""
        return self._root.inside("/".join(self._parts))

    def target(self, path: str) -> str:
        """Where `change_directory` to `path` leads, from the root; `..` stops nowhere but at the root."""
        if "\0" in path:
            raise ToolError("A path holds no NUL character; give a plain path.")
        parts = [] if path.startswith("/") else list(self._parts)
        for part in path.split("/"):
            if part == "..":
                if not parts:
                    raise ToolError(f"{path!r} leads out of the root; the working directory is {self.cwd}.")
                parts.pop()
            elif part not in ("", "."):
                parts.append(part)
        if len(parts) > MAX_DEPTH:
            raise ToolError(
                f"A path has at most {MAX_DEPTH} names, but this one has {len(parts)}.", Failure.LIMIT
            )
        return "/" + "/".join(parts)

    def change(self, path: str) -> str:
        """Stand in another folder and return it, as `cwd` names it; raises `ToolError` and stays otherwise."""
        target = self.target(path)
        self._root.inside(target.lstrip("/"))
        self._parts = tuple(target.split("/")[1:]) if target != "/" else ()
        return self.cwd
