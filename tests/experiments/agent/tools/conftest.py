from __future__ import annotations

import os
from pathlib import Path

import pytest

SECRET = "the-secret-outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with ordinary files, every kind of trap, and a secret beside it."""
    (tmp_path / "secret.txt").write_text(SECRET)
    root = tmp_path / "root"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "README.md").write_text("# Title\n\ntext\n```\n# no heading\n```\n## Part\n")
    (root / "src" / "app.py").write_text(
        "class A:\n    def run(self):\n        return 1\n\n\ndef main():\n    pass\n"
    )
    (root / "src" / "deep" / "note.txt").write_text("".join(f"line {n}\n" for n in range(1, 1001)))
    (root / "latin.txt").write_bytes(b"caf\xe9\r\nend\r\n")
    (root / "binary.bin").write_bytes(b"a\0b")
    (root / "empty.txt").write_text("")
    (root / "long.txt").write_text("x" * 100_000)
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "inner-link.txt").symlink_to(root / "README.md")
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "made.py").write_text("needle\n")
    with (root / "huge.txt").open("wb") as huge:
        huge.truncate(2**33)  # sparse: eight gibibytes that take no room
    return root
