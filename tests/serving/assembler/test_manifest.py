from __future__ import annotations

import json
from pathlib import Path

from experiments.framework.manifests import read_manifests
from serving.assembler import ContextManifest
from serving.assembler.manifest import MANIFEST_SCHEMA

SCHEMA = Path(__file__).with_name("manifest.schema.json")


def test_the_manifest_still_has_the_schema_that_is_written_down() -> None:
    """A kept schema only grows, by fields with defaults: write the new one down then, else raise the version."""
    assert ContextManifest.model_json_schema(mode="serialization") == json.loads(
        SCHEMA.read_text(encoding="utf-8")
    )


def test_a_manifest_of_schema_0_keeps_its_id() -> None:
    """Runs of before are still read; their ids are hashes over the fields that there were."""
    manifest = next(read_manifests(Path(__file__).with_name("run_of_schema_0")))
    assert manifest.schema_version == 0
    assert MANIFEST_SCHEMA == 1
