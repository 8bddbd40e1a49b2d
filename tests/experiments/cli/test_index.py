"""The index over run folders: what it computes, where it leads, and that nothing in it acts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.cli.index import PAGE, write_site
from experiments.framework.index import Place, RunCard, render_index
from experiments.framework.records import read_records
from serving.progress import Silent
from tests.experiments.framework.test_report import HOSTILE, Page
from tests.support.chromium import COMMAND, Tab, chromium
from tests.support.command import Run, one_sentence

COMMITTED = Path(__file__).parents[3] / "results" / "prefix-cache" / "qwen3-nano-shape-full"
RUN = "prefix-cache/nano"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    shutil.copytree(COMMITTED, folder / RUN)
    (folder / "survey").mkdir()
    (folder / "survey" / "table.md").write_text("a table")
    return folder


@pytest.fixture(scope="module")
def site(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    write_site(results, out, trials=1, progress=Silent())
    return out


def card(text: str, page: str = "a/report.html") -> RunCard:
    return RunCard(
        place=Place(text=text, href=page),
        question=text,
        conclusion=text,
        figure=None,
        row=(text, None, 3, 0.5, 1, text, text, text, text),
        arms=((Place(text=text, href=f"{page}#arm-1"), (text, 1, 1, 1, None, 2, 0.25)),),
    )


def links(page: Path) -> list[Path]:
    """Every place that a page leads to, as files; nothing else may be a link."""
    found = re.findall(r'<a href="([^"]*)"', page.read_text(encoding="utf-8"))
    return [(page.parent / href.partition("#")[0]).resolve() for href in found]


def test_every_page_can_be_reached_from_the_index_and_back(site: Path) -> None:
    seen, todo = set(), [(site / PAGE).resolve()]
    while todo:
        page = todo.pop()
        seen.add(page)
        if page.suffix == ".html":
            todo += [one for one in links(page) if one not in seen]
    pages = {path.resolve() for path in site.rglob("*.html")} | {(site / "survey" / "table.md").resolve()}
    assert seen == pages
    arms = {record.arm for record in read_records(COMMITTED, with_exchanges=False)}
    assert len(list((site / RUN / "trials").glob("*.html"))) == len(arms) >= 7


def test_its_numbers_are_those_of_the_records(site: Path) -> None:
    text = " ".join(Page((site / PAGE).read_text(encoding="utf-8")).text)
    records = list(read_records(COMMITTED, with_exchanges=False))
    every = sum(len(record.calls) for record in records)
    assert f"{every} of {every}" in text
    calls = [call for record in records if record.arm == "append-only" for call in record.calls]
    cached = sum(call.cached_tokens or 0 for call in calls)
    assert f"{cached / sum(call.prompt_tokens or 0 for call in calls):.1%}" in text
    assert f"Predicted and reported cached tokens agree in {every} of {every} calls." in text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_runs_add_no_tag_and_no_attribute(text: str) -> None:
    plain, hostile = Page(render_index([card("plain")])), Page(render_index([card(text)]))
    assert hostile.tags == plain.tags
    assert [(tag, name) for tag, name, _ in hostile.attributes] == [(t, n) for t, n, _ in plain.attributes]
    assert (hostile.open, hostile.crossed) == ([], [])


def test_a_folder_that_it_did_not_write_stays(ctxlab: Run, results: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep")
    one_sentence(ctxlab("index", results, "--out", tmp_path / "mine"), "was not written by `ctxlab index`")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "keep"
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    one_sentence(ctxlab("index", results, "--out", tmp_path / "link"), "was not written by `ctxlab index`")
    one_sentence(ctxlab("index", tmp_path / "nothing"), "there is no folder")


def test_a_run_that_cannot_be_read_leaves_the_old_site_and_nothing_half_written(
    results: Path, site: Path, tmp_path: Path
) -> None:
    shutil.copytree(site, tmp_path / "site")
    broken = tmp_path / "results"
    (broken / "toy" / "x").mkdir(parents=True)
    (broken / "toy" / "x" / "run.json").write_text("{")
    with pytest.raises(Exception, match=r"run\.json"):
        write_site(broken, tmp_path / "site", trials=1, progress=Silent())
    assert (tmp_path / "site" / PAGE).read_bytes() == (site / PAGE).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "site"]


def test_a_folder_without_runs_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert write_site(tmp_path / "empty", tmp_path / "site", trials=1, progress=Silent()) == []
    assert "no finished run here yet" in (tmp_path / "site" / PAGE).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    if COMMAND is None:
        pytest.skip("no Chromium on this machine")
    with chromium() as opened:
        yield opened


def test_a_press_on_a_heading_sorts_and_a_second_one_turns_it_round(tab: Tab, site: Path) -> None:
    tab.open(site / PAGE)
    assert tab.problems == []
    assert all(url.startswith(("file://", "data:image/svg", "about:")) for url in tab.requests)
    table = "[...document.querySelectorAll('table.sorts')].at(-1)"
    heading = f"{table}.tHead.rows[0].cells[7]"
    shares = f"[...{table}.tBodies[0].rows].map(row => row.cells[7].dataset.key)"
    tab.evaluate(f"{heading}.querySelector('button').focus()")
    tab.evaluate("document.activeElement.click()")
    up = [float(key) for key in tab.evaluate(shares)]
    assert up == sorted(up)
    assert tab.evaluate(f"{heading}.getAttribute('aria-sort')") == "ascending"
    tab.evaluate("document.activeElement.click()")
    assert [float(key) for key in tab.evaluate(shares)] == up[::-1]
    assert len(set(up)) > 3
