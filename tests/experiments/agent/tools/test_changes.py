from __future__ import annotations

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.agent.tools import Failure, GroupName, Toolbox, ToolOutcome, Workspace, World, build_toolbox
from experiments.agent.tools import changes as changes_module
from experiments.agent.tools.changes import MAX_WRITTEN_BYTES
from tests.support.examples import FULL, INVARIANT


def tools_in(root: Path) -> Toolbox:
    groups = [GroupName.FILES, GroupName.CHANGES, GroupName.DIRECTORY]
    return build_toolbox(groups, World(Workspace(root)))


def call(tools: Toolbox, name: str, **arguments: object) -> ToolOutcome:
    return tools.run(name, json.dumps(arguments))


def test_a_file_is_written_extended_and_changed(root: Path) -> None:
    tools = tools_in(root)
    assert call(tools, "write_file", path="new/deep/a.txt", text="one\n").ok
    assert call(tools, "append_file", path="new/deep/a.txt", text="two\n").ok
    outcome = call(tools, "replace_in_file", path="new/deep/a.txt", old="one", new="eins")
    assert outcome.ok and outcome.verified == {"path": "new/deep/a.txt", "size_bytes": 9}
    assert (root / "new/deep/a.txt").read_text() == "eins\ntwo\n"


@settings(INVARIANT, max_examples=2_000 if FULL else 100)
@given(
    parts=st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=200), min_size=1, max_size=4)
)
def test_what_was_written_is_what_stands_there(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    root = tmp_path_factory.mktemp("root")
    tools = tools_in(root)
    assert call(tools, "write_file", path="a", text=parts[0]).ok
    for part in parts[1:]:
        assert call(tools, "append_file", path="a", text=part).ok
    assert (root / "a").read_bytes() == "".join(parts).encode()
    assert [path.name for path in root.iterdir()] == ["a"]


@pytest.mark.parametrize(("old", "times"), [("line", 2), ("absent", 0)])
def test_a_text_that_does_not_occur_exactly_once_is_not_replaced(root: Path, old: str, times: int) -> None:
    (root / "two.txt").write_text("line\nline\n")
    outcome = call(tools_in(root), "replace_in_file", path="two.txt", old=old, new="x")
    assert not outcome.ok and f"occurs {times} times" in outcome.text
    assert (root / "two.txt").read_text() == "line\nline\n"


@pytest.mark.parametrize(
    "path",
    ["link.txt", "inner-link.txt", "out/made.txt", "loop/made.txt", "pipe", "src", ".", "", "/etc/x", "../x"],
)
def test_links_folders_and_places_outside_are_not_written(root: Path, path: str) -> None:
    outcome = call(tools_in(root), "write_file", path=path, text="x")
    assert not outcome.ok and outcome.failure is Failure.REFUSED
    assert (root.parent / "secret.txt").read_text() == "the-secret-outside"
    assert not (root.parent / "made.txt").exists()


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", "src/.GIT/config", ".venv/x.pth", "node_modules/a.js"]
)
def test_folders_whose_files_run_by_themselves_are_not_changed(root: Path, path: str) -> None:
    outcome = call(tools_in(root), "write_file", path=path, text="x")
    assert not outcome.ok and "which tools do not change" in outcome.text


def test_a_folder_whose_files_run_by_themselves_is_not_changed_from_inside(root: Path) -> None:
    (root / ".git" / "hooks").mkdir(parents=True)
    tools = tools_in(root)
    assert call(tools, "change_directory", path=".git").ok
    assert not call(tools, "write_file", path="hooks/pre-commit", text="x").ok


def test_a_hard_link_to_a_file_outside_is_cut_and_not_written_through(root: Path) -> None:
    (root / "hard.txt").hardlink_to(root.parent / "secret.txt")
    assert call(tools_in(root), "append_file", path="hard.txt", text="more").ok
    assert (root.parent / "secret.txt").read_text() == "the-secret-outside"


def test_a_file_keeps_its_mode_without_special_rights(root: Path) -> None:
    (root / "run.sh").write_text("x")
    (root / "run.sh").chmod(0o4750)
    assert call(tools_in(root), "write_file", path="run.sh", text="y").ok
    assert (root / "run.sh").stat().st_mode & 0o7777 == 0o750


def test_sizes_have_limits_for_a_file_and_for_a_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "MAX_RUN_BYTES", 3 * MAX_WRITTEN_BYTES)
    tools = tools_in(root)
    assert call(tools, "write_file", path="big", text="x" * (MAX_WRITTEN_BYTES + 1)).failure is Failure.LIMIT
    for number in range(3):
        assert call(tools, "write_file", path=f"big{number}", text="x" * MAX_WRITTEN_BYTES).ok
    assert call(tools, "write_file", path="small", text="x").failure is Failure.LIMIT
    assert not (root / "small").exists()


def test_files_and_folders_of_a_run_have_a_limit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "MAX_RUN_FILES", 5)
    tools = tools_in(root)
    assert call(tools, "write_file", path="a/b/c", text="x").ok
    assert call(tools, "write_file", path="d/e/f", text="x").failure is Failure.LIMIT
    assert not (root / "d").exists()


def test_a_failed_write_leaves_the_old_text_and_nothing_beside_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(changes_module.os, "rename", full)
    before = sorted(root.iterdir())
    outcome = call(tools_in(root), "write_file", path="README.md", text="x")
    assert not outcome.ok and "No space left" in outcome.text
    assert sorted(root.iterdir()) == before and (root / "README.md").read_text().startswith("# Title")


def test_a_postcondition_that_does_not_hold_is_a_failure(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "_swap_in", lambda *_: None)
    outcome = call(tools_in(root), "write_file", path="README.md", text="x")
    assert outcome.failure is Failure.POSTCONDITION


def test_many_threads_lose_no_line(root: Path) -> None:
    (root / "log").write_text("")
    tools = tools_in(root)
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda n: call(tools, "append_file", path="log", text=f"{n}\n"), range(100)))
    assert all(outcome.ok for outcome in outcomes)
    assert sorted(map(int, (root / "log").read_text().split())) == list(range(100))


def test_a_reader_sees_the_old_text_or_the_new_one(root: Path) -> None:
    tools = tools_in(root)
    texts = ["a" * 50_000, "b" * 70_000]
    (root / "whole").write_text(texts[0])
    done = threading.Event()

    def write() -> None:
        for number in range(60):
            assert call(tools, "write_file", path="whole", text=texts[number % 2]).ok
        done.set()

    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write)
        while not done.is_set():
            assert (root / "whole").read_text() in texts
        writing.result()


def test_a_link_swapped_in_while_writing_leads_nowhere(root: Path) -> None:
    """A folder becomes a link to the outside and back again and again while a file in it is written."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "target").write_text("untouched")
    (root / "swap").mkdir()
    (root / "swap" / "target").write_text("")
    (root / "out-link").symlink_to(outside)
    done = threading.Event()
    pick = random.Random(0)

    def swap() -> None:
        while not done.is_set():
            time.sleep(pick.random() / 200)  # long enough for some calls to end, too short for others
            (root / "swap").rename(root / "aside")
            (root / "swap").symlink_to(outside)
            (root / "swap").unlink()
            (root / "aside").rename(root / "swap")

    tools = tools_in(root)
    with ThreadPoolExecutor() as pool:
        swapping = pool.submit(swap)
        try:
            outcomes = [
                call(tools, "append_file", path="swap/target", text="x")
                for _ in range(3_000 if FULL else 300)
            ]
        finally:
            done.set()
        swapping.result()
    # Both happened, else the test shows nothing.
    assert {outcome.ok for outcome in outcomes} == {True, False}
    assert [path.name for path in outside.iterdir()] == ["target"]
    assert (outside / "target").read_text() == "untouched"


def test_the_working_directory_moves_the_file_tools_and_never_leaves_the_root(root: Path) -> None:
    tools = tools_in(root)
    assert call(tools, "change_directory", path="src/deep").ok
    assert call(tools, "head", path="note.txt", lines=1).text.startswith("line 1")
    assert call(tools, "find_files", pattern="*.txt").text == "note.txt"
    assert call(tools, "change_directory", path="../..").ok
    assert call(tools, "current_directory").text == "/"
    for path in ("..", "/..", "src/../..", "out", "loop", "README.md", "absent", "src\0"):
        assert not call(tools, "change_directory", path=path).ok, path
    assert call(tools, "current_directory").text == "/"


def test_a_working_directory_that_became_a_link_is_not_followed(root: Path) -> None:
    tools = tools_in(root)
    assert call(tools, "change_directory", path="src").ok
    (root / "src").rename(root / "gone")
    (root / "src").symlink_to(root.parent)
    for name in ("read_file", "list_dir", "file_info"):
        outcome = call(tools, name, path="secret.txt")
        assert not outcome.ok and "the-secret-outside" not in outcome.text
    assert not call(tools, "write_file", path="secret.txt", text="x").ok
    assert call(tools, "change_directory", path="/").ok
