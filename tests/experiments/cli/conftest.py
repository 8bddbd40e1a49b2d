from __future__ import annotations

import sys

import pytest

from experiments.cli.main import main
from tests.support.command import Done, Run


@pytest.fixture
def ctxlab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["ctxlab", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return Done(int(ended.value.code or 0), shown.out, shown.err)

    return run
