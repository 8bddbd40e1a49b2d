from __future__ import annotations

import json
from pathlib import Path

from serving.assembler import ContextManifest
from serving.assembler.manifest import MANIFEST_SCHEMA

SCHEMA = Path(__file__).with_name("manifest.schema.json")


def test_the_manifest_still_has_the_schema_that_is_written_down() -> None:
    """On a wanted change: write the new schema down, and raise the version once schema 0 is closed."""
    assert ContextManifest.model_json_schema(mode="serialization") == json.loads(
        SCHEMA.read_text(encoding="utf-8")
    )


def test_the_schema_is_still_open_for_change() -> None:
    assert MANIFEST_SCHEMA == 0
