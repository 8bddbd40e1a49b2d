from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import Markup

from experiments.framework.analysis import Analysis, Exclusion, Table
from experiments.framework.arms import Arm, ArmDiff, DiffRow
from experiments.framework.failures import InfrastructureError
from experiments.framework.report import (
    ArmView,
    Fact,
    ReportFigure,
    ReportModel,
    TrialView,
    publish,
    render_report,
)
from experiments.framework.runner import run_study
from experiments.framework.study import TrialContext
from experiments.framework.trials import BreakExcerpt, CallRecord, OutcomeKind, TrialRecord, TrialSpec
from serving.errors import UsageError
from tests.support.toy_study import SMALL, TINY, Starter, Toy

HOSTILE = [
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" \'',
    "{{ report.title }}{% raw %}",
    "<!-- -->]]>&amp;&#x3c;script&#x3e;",
    "\u202e\u2066evil\x00\x1b[31m\ud800",
    "x" * 100_000,
    "javascript:alert(1)",
]


VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Everything in a page that could act or fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.crossed: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def filled(text: str) -> ReportModel:
    """A report that says `text` in every place where a study's data can go."""
    table = Table(title=text, columns=(text,), rows=((text,), (None,), (0.5,)), note=text)
    call = CallRecord(
        prompt_tokens=64,
        cached_tokens=32,
        predicted_tokens=32,
        causes={text: 32},
        first_broken=text,
        excerpt=BreakExcerpt(
            position=33, stored_ids=(1, 151643), sent_ids=(2,), stored_text=text, sent_text=text
        ),
    )
    trial = TrialView(
        title=text, kind=OutcomeKind.OK, outcome=text, facts=(Fact(name=text, value=text),), calls=(call,)
    )
    return ReportModel(
        title=text,
        question=text,
        conclusion=text,
        diff=ArmDiff(arms=(text,), rows=(DiffRow(path=text, base=text, values=({text: [text]},)),)),
        tables=(table,),
        figures=(ReportFigure(title=text, caption=text, svg=text.encode("utf-8", "replace"), table=table),),
        arms=(ArmView(name=text, title=text, why=text, changes=(text,), trials=(trial,), trials_hidden=3),),
        exclusions=(Exclusion(reason=text, trials=1),),
        environment=(Fact(name=text, value=text),),
        reproduce=(text,),
    )


@pytest.mark.parametrize("text", [*HOSTILE, Markup("<script>alert(1)</script>")], ids=range(len(HOSTILE) + 1))
def test_hostile_data_adds_no_tag_and_no_attribute_anywhere(text: str) -> None:
    plain, hostile = Page(render_report(filled("plain"))), Page(render_report(filled(text)))
    assert hostile.tags == plain.tags
    assert [(tag, name) for tag, name, _ in hostile.attributes] == [(t, n) for t, n, _ in plain.attributes]
    assert "script" not in hostile.tags
    assert not [name for _, name, _ in hostile.attributes if name.startswith("on")]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_the_page_fetches_nothing(text: str) -> None:
    page = Page(render_report(filled(text)))
    urls = [
        value for _, name, value in page.attributes if name in {"src", "href", "action", "data", "srcset"}
    ]
    assert urls
    assert all(value and value.startswith("data:image/svg+xml;base64,") for value in urls)
    policy = next(
        v for t, n, v in page.attributes if (t, n) == ("meta", "content") and v and "default-src" in v
    )
    assert policy.startswith("default-src 'none'")


def test_hostile_text_is_still_readable_as_text() -> None:
    page = "".join(Page(render_report(filled("<b>&\u202e</b>"))).text)
    assert "<b>&\\u202e</b>" in page


@pytest.mark.parametrize("text", ["plain", *HOSTILE], ids=range(len(HOSTILE) + 1))
def test_every_tag_is_closed_where_it_should_be(text: str) -> None:
    page = Page(render_report(filled(text)))
    assert (page.open, page.crossed) == ([], [])


def test_a_huge_token_is_cut_and_the_page_stays_small() -> None:
    page = render_report(filled("x" * 100_000))
    without_pictures = re.sub(r"base64,[A-Za-z0-9+/=]*", "", page)
    assert len(without_pictures) < 120_000
    assert "(100,000 characters)" in page


def test_the_unknown_is_called_unknown_and_ids_have_no_separators() -> None:
    page = Page(render_report(filled("plain")))
    assert "unknown" in page.text
    assert any("151643" in text for text in page.text)


def test_a_run_becomes_a_page_with_its_diff_its_numbers_and_its_exclusions(tmp_path: Path) -> None:
    def hook(spec: TrialSpec, context: TrialContext[Path]) -> None:
        if context.attempt == 1 and context.arm.name == "null":
            raise InfrastructureError("the server died")

    study, folder = Toy(tmp_path / "ledger", hook=hook), tmp_path / "run"
    run_study(study, TINY, folder=folder, serve=Starter())
    path = publish(study, folder, reproduce=("ctxlab run toy --quick",))
    assert path == folder / "report.html"
    text = " ".join(Page(path.read_text()).text)
    for said in (
        "Does the clock break the prefix?",
        "With the clock 0.0 of the prompt is cached",
        "fault.clock",
        "the server died",
        "attempts that the machinery failed",
        "predicted == reported in 1 of 1 calls",
        "ctxlab run toy --quick",
    ):
        assert said in text
    assert sorted(p.name for p in (folder / "figures").iterdir()) == [
        f"{name}.{ending}" for name in ("causes", "shares") for ending in ("csv", "json", "png", "svg")
    ]
    assert base64.b64encode((folder / "figures" / "shares.svg").read_bytes()).decode() in path.read_text()
    first = path.read_bytes()
    assert publish(study, folder, reproduce=("ctxlab run toy --quick",)).read_bytes() == first


def test_the_analysis_sees_scored_records_only(tmp_path: Path) -> None:
    seen: list[TrialRecord] = []

    class Watching(Toy):
        def analyse(self, records: Sequence[TrialRecord]) -> Analysis:
            seen.extend(records)
            return super().analyse(records)

    def hook(spec: TrialSpec, context: TrialContext[Path]) -> None:
        if context.attempt == 1:
            raise InfrastructureError("died")

    study = Watching(tmp_path / "ledger", hook=hook)
    run_study(study, TINY, folder=tmp_path / "run", serve=Starter())
    publish(study, tmp_path / "run")
    assert len(seen) == 8
    assert all(record.scored for record in seen)


def test_an_unfinished_run_says_how_much_is_missing_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    count = iter(range(100))

    def stop(spec: TrialSpec, context: TrialContext[Path]) -> None:
        if next(count) == 40:
            raise KeyboardInterrupt

    study, folder = Toy(tmp_path / "ledger", hook=stop), tmp_path / "run"
    with pytest.raises(UsageError, match="not a run folder"):
        publish(study, folder)
    with pytest.raises(Exception, match="Interrupted after 40 of 48"):
        run_study(study, SMALL, folder=folder, serve=Starter())
    text = " ".join(Page(publish(study, folder).read_text()).text)
    assert "8: planned, without a scored record" in text
    assert "1: attempts cut off by an interruption" in text


def test_a_folder_of_another_study_is_refused(tmp_path: Path) -> None:
    study = Toy(tmp_path / "ledger")
    run_study(study, TINY, folder=tmp_path / "run", serve=Starter())
    study.name = "other"
    with pytest.raises(UsageError, match="holds study 'toy', not 'other'"):
        publish(study, tmp_path / "run")


def test_an_arm_without_changes_and_a_diff_without_rows_are_said() -> None:
    report = filled("plain").model_copy(update={"diff": ArmDiff(arms=("a",), rows=()), "exclusions": ()})
    page = " ".join(Page(render_report(report)).text)
    assert "No factor differs" in page
    assert "None: every planned trial is in the numbers." in page
    assert Arm(name="a", title="", why="").factors == {}
