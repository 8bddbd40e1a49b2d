from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import escape
from typer.testing import CliRunner

from experiments.cli.chat_session import SavedCall
from experiments.cli.lint import headline
from experiments.cli.lint_page import render_page
from experiments.cli.main import app
from serving.chat import ChatRenderer
from serving.client import ErrorKind, Usage
from serving.explain import MissCause
from serving.explain.lint import Linter, LintOptions, LintReport, LogReader, ReportBuilder
from serving.explain.ttft import TtftModel
from tests.support.logs import Body, answered, ask, assistant, system, user, write_log
from tests.support.scripted import exchange
from tests.support.tiny_models import tiny_model

HOSTILE = "</td><script>alert(1)</script><img src=https://elsewhere.example/x onerror=alert(2)>\u202e\x1b[31m"
RULES = "You are a careful harbour assistant. Answer in one sentence and name the berth."


def clocked(number: int, *, text: str = RULES) -> Body:
    head = system(f"Now: 2026-03-02T09:0{number}:07Z. {text}")
    turns = [user("Which berth is free?"), *[assistant("Berth four."), user("And then?")] * number]
    return ask(head, *turns)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"), "qwen2_5")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "requests.jsonl", [clocked(number) for number in range(4)])


def ctxlab(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def report_of(path: Path, model: Path, **options: object) -> LintReport:
    chosen = LintOptions(block_size=8, **options)  # type: ignore[arg-type]
    with LogReader(path) as reader:
        linter = Linter(reader, model, chosen)
        builder = ReportBuilder(path.name, chosen, price=1e-6, seconds=lambda k, u: 0.001 * u)
        for item in linter.requests():
            builder.add(item)
        return builder.report(served_name=linter.served_name, kept=linter.kept())


def test_what_chat_saves_can_be_linted_with_its_ids_and_its_usage(tmp_path: Path, model: Path) -> None:
    body = clocked(0)
    renderer = ChatRenderer(model)
    read = renderer.render_body(body["messages"], ()).token_ids
    said = renderer.tokenizer.encode("Berth four.").ids
    made = exchange("Berth four.").model_copy(
        update={
            "request": body,
            "prompt_token_ids": read,
            "output_token_ids": said,
            "usage": Usage(prompt_tokens=len(read), completion_tokens=len(said), cached_tokens=8),
        }
    )
    failed = exchange(error=ErrorKind.CUT).model_copy(update={"request": body})
    log = tmp_path / "saved.jsonl"
    calls = [
        SavedCall(exchange=one, predicted_cached_tokens=None, call_form=None) for one in (made, made, failed)
    ]
    log.write_text("".join(f"{call.model_dump_json()}\n" for call in calls))
    code, _, err = ctxlab(
        "lint", log, "--model", model, "--block-size", 8, "--requests", tmp_path / "lines.jsonl"
    )
    assert code == 0, err
    first, second, third = map(json.loads, (tmp_path / "lines.jsonl").read_text().splitlines())
    assert (first["reply_ids"], third["reply_ids"]) == ("recorded", "unknown")
    assert (first["reported_tokens"], third["reported_tokens"]) == (8, None)
    assert second["cached_tokens"] == (len(read) - 1) // 8 * 8


def test_the_table_names_the_first_breaker_the_loss_and_the_change(log: Path, model: Path) -> None:
    code, out, _ = ctxlab("lint", log, "--model", model, "--block-size", 8, "--price", 2.5)
    assert code == 0
    assert "first in line 2: clock" in out
    assert "Move the time to the end of the newest message" in out
    assert "token 2" in out and "line 2 against line 1" in out
    assert "at the given price" in out


def test_json_holds_the_whole_report_and_nothing_else(log: Path, model: Path) -> None:
    code, out, _ = ctxlab("lint", log, "-m", model, "--block-size", 8, "--json")
    report = LintReport.model_validate(json.loads(out))
    assert code == 0
    assert report.requests == 4
    assert report.cached_tokens + sum(report.tokens_by_cause.values()) == report.prompt_tokens
    assert report.first_break is not None and report.first_break.cause is MissCause.CLOCK


@pytest.mark.parametrize(("share", "code"), [(0.0, 0), (0.05, 0), (0.99, 1)])
def test_a_share_below_the_bar_ends_with_one(log: Path, model: Path, share: float, code: int) -> None:
    ended, _, err = ctxlab("lint", log, "-m", model, "--block-size", 8, "--fail-under", share)
    assert ended == code
    assert ("below" in err) == bool(code)


def test_every_request_can_be_had_as_a_line(log: Path, model: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    ctxlab("lint", log, "-m", model, "--block-size", 8, "--requests", lines)
    second = [json.loads(line) for line in lines.read_text().splitlines()][1]
    assert (second["line"], second["against"], second["cause"]) == (2, 1, "clock")
    assert second["break"]["message"] == 0
    assert sum(second["tokens_by_cause"].values()) == second["prompt_tokens"] - second["cached_tokens"]


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "it is empty"), (b"{torn", "line 1: Expected JSON"), (b"\x80\x81\n", "line 1: Expected UTF-8")],
)
def test_a_log_without_a_request_is_refused_with_its_first_fault(
    tmp_path: Path, model: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    result = CliRunner().invoke(app, ["lint", str(path), "-m", str(model)])
    assert result.exit_code != 0
    assert said in str(result.exception)


def test_what_is_no_request_is_listed_and_the_rest_is_linted(log: Path, model: Path) -> None:
    with log.open("ab") as file:
        file.write(b'{"messages": []}\n\xff\n')
    code, out, _ = ctxlab("lint", log, "-m", model, "--block-size", 8)
    assert code == 0
    assert "2 of the log's lines" in out
    assert "line 5: Expected `messages`" in out and "line 6: Expected UTF-8" in out


def test_a_fitted_machine_turns_tokens_into_seconds(log: Path, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "ttft.json"
    other.write_text("{}")
    result = CliRunner().invoke(app, ["lint", str(log), "-m", str(model), "--ttft", str(other)])
    assert "ctxlab ttft --out" in str(result.exception)
    machine = TtftModel(request_s=0.1, token_s=0.002, pair_s=0)
    fitted = {
        "model": machine.model_dump(),
        "loss": "absolute",
        "samples": 3,
        "clusters": 1,
        "intervals": None,
    }
    errors = {"median_error_s": 0.1, "median_relative_error": 0.1, "p90_error_s": 0.1}
    other.write_text(json.dumps(fitted | errors))
    _, out, _ = ctxlab("lint", log, "-m", model, "--block-size", 8, "--ttft", other, "--json")
    report = LintReport.model_validate(json.loads(out))
    assert report.lost_seconds == pytest.approx(0.002 * report.lost_tokens)


# --- the page ---------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Every tag and every address of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]
        assert not [name for name, _ in attrs if name.startswith("on")]


def test_hostile_text_is_inert_on_the_page(tmp_path: Path, model: Path) -> None:
    texts = [f"{HOSTILE} {RULES}", f"{RULES} {HOSTILE}"]
    log = write_log(
        tmp_path / "<b>log.jsonl",
        [
            {
                **ask(system(text), user(HOSTILE), *[assistant(HOSTILE), user(HOSTILE)] * turn),
                "model": HOSTILE,
            }
            for turn, text in enumerate(texts)
        ],
    )
    with log.open("a") as file:
        file.write(
            json.dumps({"messages": [{"role": HOSTILE, "content": [{"type": HOSTILE}]}], "model": HOSTILE})
            + "\n"
        )
    page = render_page(report_of(log, model, server_usage=True))
    found = Page(page)
    assert not {"script", "img", "b", "link", "iframe"} & set(found.tags)
    assert found.addresses == []
    assert "default-src 'none'" in page
    assert "\u202e" not in page and "\x1b" not in page
    assert escape("<script>") in page


def test_the_page_tells_what_the_terminal_tells(log: Path, model: Path) -> None:
    report = report_of(log, model)
    page = render_page(report)
    assert escape(headline(report)) in page
    for group in report.groups:
        assert group.cause.value in page
        assert escape(group.advice) in page
    assert page == render_page(report)


def test_the_page_of_a_log_with_usage_shows_what_is_impossible(tmp_path: Path, model: Path) -> None:
    path = tmp_path / "usage.jsonl"
    size = report_of(write_log(path, [clocked(0)]), model).prompt_tokens
    write_log(path, [answered(clocked(0), assistant("Four."), prompt=size, cached=size - 1)])
    page = render_page(report_of(path, model, server_usage=True))
    assert "impossible with blocks of 8" in page


def test_the_command_takes_a_page_along(log: Path, model: Path, tmp_path: Path) -> None:
    page = tmp_path / "lint.html"
    code, out, _ = ctxlab("lint", log, "-m", model, "--html", page)
    assert code == 0
    assert str(page.name) in out
    assert page.read_text().lstrip().startswith("<!doctype html>")
