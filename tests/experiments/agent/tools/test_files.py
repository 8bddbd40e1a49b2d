from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.agent.tools import FileTools
from experiments.agent.tools.files import MAX_CHARACTERS, MAX_LINES
from serving.errors import UsageError

SECRET = "the-secret-outside"
PATH_TOOLS = ("read_file", "list_dir", "file_info", "count_lines", "head", "tail", "outline")
BOUND = MAX_CHARACTERS + 1000
"""The room of the lines, and the one line that says what was left out."""

pieces = st.sampled_from(
    [
        "..",
        ".",
        "",
        "~",
        "/",
        "src",
        "out",
        "link.txt",
        "secret.txt",
        "loop",
        "pipe",
        "huge.txt",
        "\0",
        "root",
    ]
) | st.text(max_size=20)
paths = st.lists(pieces, max_size=6).map("/".join) | st.text(max_size=60)


def run(root: Path, name: str, **arguments: object) -> tuple[str, bool]:
    outcome = FileTools(root).run(name, json.dumps(arguments))
    return outcome.text, outcome.ok


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=paths, tool=st.sampled_from((*PATH_TOOLS, "find_files", "grep")))
def test_no_path_leads_out_of_the_folder_or_raises(root: Path, path: str, tool: str) -> None:
    arguments = {"path": path, "pattern": "the-secret"} if tool == "grep" else {"path": path}
    if tool == "find_files":
        arguments = {"pattern": path}
    text, _ = run(root, tool, **arguments)
    assert SECRET not in text
    assert "secret.txt (" not in text  # the listing of the folder above
    assert len(text) <= BOUND
    text.encode()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["read_file", "grep", "find_files", "", "rm", "__init__", "_run"])
    | st.text(max_size=9),
    arguments=st.text(max_size=40)
    | st.dictionaries(
        st.sampled_from(["path", "pattern", "start_line", "max_lines", "lines", "x"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.lists(st.none()),
    ).map(json.dumps),
)
def test_whatever_a_model_writes_gets_words_back(root: Path, name: str, arguments: str) -> None:
    outcome = FileTools(root).run(name, arguments)
    assert outcome.text
    outcome.text.encode()


@pytest.mark.parametrize("tool", PATH_TOOLS)
@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "src/../../secret.txt",
        "/etc/passwd",
        "~/x",
        "link.txt",
        "out/secret.txt",
        "loop/README.md",
    ],
)
def test_ways_out_and_links_are_refused_in_words(root: Path, tool: str, path: str) -> None:
    if (tool, path) == ("file_info", "link.txt"):
        assert run(root, tool, path=path) == ("link", True)
        return
    text, ok = run(root, tool, path=path)
    assert not ok
    assert "relative" in text or "link" in text


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("pipe", "special file"),
        ("huge.txt", "more than"),
        ("binary.bin", "binary"),
        ("src", "folder"),
        (".", "folder"),
        ("nowhere.txt", "does not exist"),
        ("README.md/x", "not a folder"),
        ("a" * 300, "cannot be read"),
        ("x\0y", "NUL"),
    ],
)
def test_what_is_no_readable_text_file_is_told_why(root: Path, path: str, reason: str) -> None:
    text, ok = run(root, "read_file", path=path)
    assert not ok
    assert reason in text


def test_a_page_says_where_it_ends_and_how_to_go_on(root: Path) -> None:
    text, ok = run(root, "read_file", path="src/deep/note.txt", start_line=5, max_lines=2)
    assert (text, ok) == ("line 5\nline 6\n[lines 5-6 of 1000; continue with start_line=7]", True)


def test_pages_read_one_after_another_give_the_whole_file(root: Path) -> None:
    seen: list[str] = []
    while len(seen) < 1000:
        text, ok = run(root, "read_file", path="src/deep/note.txt", start_line=len(seen) + 1, max_lines=10**9)
        assert ok
        *lines, note = text.split("\n")
        assert len(lines) <= MAX_LINES
        assert note.startswith(f"[lines {len(seen) + 1}-{len(seen) + len(lines)} of 1000")
        seen += lines
    assert seen == [f"line {n}" for n in range(1, 1001)]


def test_a_start_behind_the_end_is_refused(root: Path) -> None:
    text, ok = run(root, "read_file", path="README.md", start_line=99)
    assert not ok
    assert "7 lines" in text


def test_a_long_line_is_cut_and_says_so(root: Path) -> None:
    text, ok = run(root, "head", path="long.txt")
    assert ok
    assert text.endswith("[…99,600 more characters]")


def test_other_encodings_are_read_with_replacements(root: Path) -> None:
    assert run(root, "read_file", path="latin.txt") == ("caf�\nend", True)


def test_first_and_last_lines(root: Path) -> None:
    assert run(root, "head", path="src/app.py", lines=1)[0].startswith("class A:\n[lines 1-1 of 7")
    assert run(root, "tail", path="src/app.py", lines=2)[0] == "def main():\n    pass\n[lines 6-7 of 7]"
    assert run(root, "tail", path="latin.txt", lines=50)[0] == "caf�\nend"
    assert run(root, "head", path="empty.txt")[0] == "The file is empty."


def test_globs_go_by_name_or_by_path(root: Path) -> None:
    assert run(root, "find_files", pattern="*.py") == ("src/app.py", True)
    assert run(root, "find_files", pattern="src/**/*.txt") == ("src/deep/note.txt", True)
    assert run(root, "find_files", pattern="src/*.txt") == ("No file matches src/*.txt.", True)
    assert run(root, "find_files", pattern="**")[0].count("\n") > 5


def test_grep_gives_path_and_line_and_skips_what_tools_made(root: Path) -> None:
    assert run(root, "grep", pattern=r"def \w+\(") == (
        "src/app.py:2: def run(self):\nsrc/app.py:6: def main():",
        True,
    )
    assert run(root, "grep", pattern="needle")[0] == "No line matches needle."
    assert run(root, "grep", pattern="x", path="huge.txt")[1] is False


def test_a_cut_list_says_that_there_is_more(root: Path) -> None:
    text, ok = run(root, "grep", pattern="line")
    assert ok
    assert text.endswith(f"[the first {MAX_LINES} matches; there are more: be more specific]")


def test_a_listing_tells_kinds_and_no_times(root: Path) -> None:
    before = run(root, "list_dir")
    os.utime(root / "README.md", (1, 1))
    assert run(root, "list_dir") == before
    assert before[0].split("\n")[:2] == ["README.md (43 bytes)", "binary.bin (3 bytes)"]
    assert "pipe (special file)" in before[0]
    assert "out (link)" in before[0]


def test_order_on_the_disk_does_not_show(tmp_path: Path) -> None:
    names = [f"{n:02d}.txt" for n in range(30)]
    for order in (names, names[::-1]):
        folder = tmp_path / order[0]
        folder.mkdir()
        for name in order:
            (folder / name).write_text("hit")
    one, two = (tmp_path / names[0]), (tmp_path / names[-1])
    for tool, arguments in (("list_dir", {}), ("find_files", {"pattern": "*"}), ("grep", {"pattern": "hit"})):
        assert run(one, tool, **arguments) == run(two, tool, **arguments)


def test_names_that_are_no_text_are_shown_as_escapes(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff\n\x1b[31m.txt")).write_text("x")
    text, ok = run(tmp_path, "list_dir")
    assert ok
    assert text == "bad\\udcff\\n\\x1b[31m.txt (1 bytes)"


def test_the_outline_of_python_and_markdown(root: Path) -> None:
    assert (
        run(root, "outline", path="src/app.py")[0]
        == "class A (line 1)\n  def run (line 2)\ndef main (line 6)"
    )
    assert run(root, "outline", path="README.md")[0] == "# Title (line 1)\n## Part (line 7)"
    (root / "broken.py").write_text("def (")
    assert run(root, "outline", path="broken.py")[1] is False
    (root / "deep.py").write_text("(" * 5000)
    assert run(root, "outline", path="deep.py")[1] is False


def test_wrong_arguments_name_the_argument_and_what_the_tool_takes(root: Path) -> None:
    text, ok = run(root, "head", path="README.md", lines="2")
    assert not ok
    assert "'lines'" in text
    assert "lines: integer (optional)" in text


def test_a_root_that_is_no_folder_is_refused(root: Path) -> None:
    with pytest.raises(UsageError, match="existing folder"):
        FileTools(root / "README.md")


def test_a_root_reached_through_a_link_is_a_folder(root: Path) -> None:
    assert FileTools(root / "loop").run("count_lines", '{"path": "README.md"}').text == "7 lines"
