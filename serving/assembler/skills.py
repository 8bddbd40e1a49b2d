"""What is named in the head and sent in full only when it is called for: skills, and tools' contracts.

The head holds one line each, from the first request on. The full text is appended to the log behind the turn
that called for it and stays there: the head, the offered tools and everything sent before keep their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from serving.assembler.items import ContextItem
from serving.assembler.kinds import Layer
from serving.assembler.payloads import Loads, SkillBody, SkillEntry, Text, ToolContract
from serving.assembler.record import Record
from serving.errors import UsageError

_NAME: Final = re.compile(r"[\w.-]+")
_FILE: Final = re.compile(r"[\w.-]+(/[\w.-]+)*")


def _plain_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("a skill's name has letters, digits and ._- only")
    return name


def _inside_the_skill(path: str) -> str:
    if not _FILE.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise ValueError("a skill's file is a relative path of letters, digits and ._- without '..'")
    return path


class SkillFile(Record):
    """One file that a skill's body refers to."""

    path: Annotated[str, AfterValidator(_inside_the_skill)]
    """Relative to the skill: `references/units.md`."""
    text: Text


class Skill(Record):
    """Instructions for one sort of task, written by whoever runs the application."""

    name: Annotated[str, AfterValidator(_plain_name)]
    description: Text
    """The condition under which to load it, in the words that the model routes by."""
    body: Text
    files: tuple[SkillFile, ...] = ()
    version: str | None = None

    def _problem(self) -> str | None:
        paths = [file.path for file in self.files]
        if len(set(paths)) < len(paths):
            return f"every file of a skill has its own path, but {self.name} names one twice"
        return None


class SkillLibrary(Record):
    """The skills of a deployment; what a request holds of them depends on its log alone."""

    skills: tuple[Skill, ...]

    def _problem(self) -> str | None:
        names = [skill.name for skill in self.skills]
        if len(set(names)) < len(names):
            return "every skill has its own name, but one comes twice"
        return None

    @property
    def catalogue(self) -> tuple[ContextItem, ...]:
        """One line a skill for the head, loaded or not: candidates of every request."""
        return tuple(
            ContextItem(
                id=f"skill-entry:{skill.name}",
                payload=SkillEntry(name=skill.name, description=skill.description),
                source=f"skills/{skill.name}",
                version=skill.version,
            )
            for skill in self.skills
        )

    def load(self, name: str, log: Sequence[ContextItem], file: str | None = None) -> tuple[ContextItem, ...]:
        """What to append to `log` for the skill's body, or for one of its files; empty when it stands there.

        A file brings the body with it where that is missing, since the body says what the file is for. Append
        behind the turn that called for it, before that turn is first sent. A text that was loaded stays as
        it was sent, whatever the library holds now. `UsageError` for a skill or file that is not there.
        """
        skill = next((skill for skill in self.skills if skill.name == name), None)
        if skill is None:
            known = ", ".join(skill.name for skill in self.skills) or "none"
            raise UsageError(f"Expected one of the skills {known}, but '{name}' was called for.")
        texts: list[tuple[str | None, str]] = [(None, skill.body)]
        if file is not None:
            text = next((known.text for known in skill.files if known.path == file), None)
            if text is None:
                known_files = ", ".join(known.path for known in skill.files) or "none"
                raise UsageError(
                    f"Expected one of the files of skill {name} ({known_files}), but '{file}' was called for."
                )
            texts.append((file, text))
        present = {
            (item.payload.name, item.payload.file) for item in log if isinstance(item.payload, SkillBody)
        }
        return tuple(
            ContextItem(
                id=f"skill:{name}" if path is None else f"skill:{name}/{path}",
                payload=SkillBody(name=name, text=text, file=path),
                source=f"skills/{name}" if path is None else f"skills/{name}/{path}",
                version=skill.version,
            )
            for path, text in texts
            if (name, path) not in present
        )


class DeferredTool(Record):
    """A tool that the head names and whose contract is sent only when the model asks for it."""

    contract: ToolContract
    line: Text
    """What it is good for, in one line."""
    version: str | None = None

    def _problem(self) -> str | None:
        if "\n" in self.line:
            return f"{self.contract.spec.name} is named in one line, but its line has a line break"
        return None


class DeferredTools(Record):
    """Tools too many to offer at once; the `tools` of a request are the same before and after loading one.

    A server calls a loaded tool only if its parser takes names that are not among `tools`; constrained tool
    choice does not. The gates see offered tools: ask `stage_allows` before executing a loaded one.
    """

    tools: tuple[DeferredTool, ...] = Field(default=())

    def _problem(self) -> str | None:
        names = [tool.contract.spec.name for tool in self.tools]
        if len(set(names)) < len(names):
            return "every deferred tool has its own name, but one comes twice"
        return None

    @property
    def catalogue(self) -> tuple[ContextItem, ...]:
        """One line a tool for the head, loaded or not: candidates of every request."""
        return tuple(
            ContextItem(
                id=f"tool-entry:{tool.contract.spec.name}",
                payload=SkillEntry(name=tool.contract.spec.name, description=tool.line, loads=Loads.TOOL),
                layer=Layer.CAPABILITY,
                source=f"tools/{tool.contract.spec.name}",
                version=tool.version,
            )
            for tool in self.tools
        )

    def load(self, name: str, log: Sequence[ContextItem]) -> tuple[ContextItem, ...]:
        """The contract to append to `log` behind the turn that called for it; empty when it stands there."""
        tool = next((tool for tool in self.tools if tool.contract.spec.name == name), None)
        if tool is None:
            known = ", ".join(tool.contract.spec.name for tool in self.tools) or "none"
            raise UsageError(f"Expected one of the deferred tools {known}, but '{name}' was called for.")
        if any(isinstance(item.payload, ToolContract) and item.payload.spec.name == name for item in log):
            return ()
        return (
            ContextItem(
                id=f"tool:{name}", payload=tool.contract, source=f"tools/{name}", version=tool.version
            ),
        )
