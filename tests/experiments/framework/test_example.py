from __future__ import annotations

import textwrap
from contextlib import contextmanager
from pathlib import Path

import numpy
import pytest

import experiments.framework
from experiments.framework.records import read_records


def test_the_study_in_the_package_s_docstring_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert experiments.framework.__doc__ is not None
    example = textwrap.dedent(experiments.framework.__doc__.split("A study is one file:\n", 1)[1])
    names = {name: getattr(experiments.framework, name) for name in experiments.framework.__all__}
    monkeypatch.chdir(tmp_path)
    exec(example, {**names, "numpy": numpy, "Path": Path, "contextmanager": contextmanager})
    assert len(list(read_records(Path("runs/clock")))) == 9
    assert "The clock adds 96 uncached tokens a call." in Path("runs/clock/report.html").read_text()
