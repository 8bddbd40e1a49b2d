from __future__ import annotations

from pathlib import Path

import pytest

from experiments.agent.tools.sandbox import NoIsolationError, macos


def test_a_profile_denies_by_default_and_opens_the_scratch_folder_alone_for_writing() -> None:
    lines = macos.profile(Path('/private/a "b" \\c')).splitlines()
    assert lines[:4] == ["(version 1)", "(deny default)", "(deny network*)", "(deny process-fork)"]
    writing = [line for line in lines if "file-write" in line]
    assert writing == [
        '(allow file-write-data (literal "/dev/null"))',
        '(allow file-read* file-write* (subpath "/private/a \\"b\\" \\\\c"))',
    ]
    assert "\n".join(lines).count("(") == "\n".join(lines).count(")")


def test_a_mac_without_sandbox_exec_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(macos, "SANDBOX_EXEC", str(tmp_path / "absent"))
    with pytest.raises(NoIsolationError, match="leave the code interpreter out"):
        macos.MacSandbox()
