"""Regressions as folders: the record that went wrong, both policies, and one JSON file a case."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from experiments.cli.assembly_files import (
    MANIFEST_FILE,
    RENDERER_FILE,
    REQUEST_FILE,
    RendererNote,
    parsed,
    read_json,
    write_documents,
)
from serving.assembler import (
    AssemblyRequest,
    Case,
    ContextManifest,
    ContextPolicy,
    IncidentClass,
    Regression,
)
from serving.assembler.incident import INCIDENT_CASE
from serving.assembler.record import Record
from serving.errors import UsageError

INCIDENT_FILE, OLD_POLICY_FILE, NEW_POLICY_FILE = "incident.json", "old_policy.json", "new_policy.json"
CASES_FOLDER: Final = "cases"


class IncidentNote(Record):
    """What a person said of the incident."""

    classification: IncidentClass
    critical: str


def save_regression(folder: Path, regression: Regression, renderer: RendererNote) -> None:
    """Write a regression into a new or empty folder; texts are included, as in a saved assembly."""
    documents: dict[str, Record] = {
        INCIDENT_FILE: IncidentNote(classification=regression.classification, critical=regression.critical),
        MANIFEST_FILE: regression.manifest,
        REQUEST_FILE: regression.request,
        OLD_POLICY_FILE: regression.old_policy,
        NEW_POLICY_FILE: regression.new_policy,
        RENDERER_FILE: renderer,
        **{f"{CASES_FOLDER}/{case.name}.json": case for case in regression.cases},
    }
    write_documents(folder, documents)


def read_regression(folder: Path) -> tuple[Regression, RendererNote]:
    """A folder that `save_regression` wrote; `UsageError` names the file and the field that is wrong."""
    if not (folder / INCIDENT_FILE).is_file():
        raise UsageError(
            f"{folder} holds no {INCIDENT_FILE}; give a folder that `ctxlab incident build` wrote."
        )

    def read(kind: type[Record], name: str) -> Record:
        return parsed(kind, read_json(folder / name), folder / name)

    note = parsed(IncidentNote, read_json(folder / INCIDENT_FILE), folder / INCIDENT_FILE)
    paths = sorted(
        (folder / CASES_FOLDER).glob("*.json"), key=lambda path: (path.stem != INCIDENT_CASE, path.stem)
    )
    regression = Regression.model_validate(
        {
            "classification": note.classification,
            "critical": note.critical,
            "manifest": read(ContextManifest, MANIFEST_FILE),
            "request": read(AssemblyRequest, REQUEST_FILE),
            "old_policy": read(ContextPolicy, OLD_POLICY_FILE),
            "new_policy": read(ContextPolicy, NEW_POLICY_FILE),
            "cases": tuple(_case(path) for path in paths),
        }
    )
    renderer = parsed(RendererNote, read_json(folder / RENDERER_FILE), folder / RENDERER_FILE)
    return regression, renderer


def _case(path: Path) -> Case:
    value = read_json(path)
    if isinstance(value, dict) and "request" in value:
        # Read on its own first: the sentence about a request names the item at fault.
        parsed(AssemblyRequest, value["request"], path)
    case = parsed(Case, value, path)
    if case.name != path.stem:
        raise UsageError(f"{path}: expected the case '{path.stem}', but it says that it is '{case.name}'.")
    return case
