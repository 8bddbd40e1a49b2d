"""A saved run as a page: every step can be opened, every text is inert, and nothing comes from elsewhere."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from experiments.agent.loop import run_turn
from experiments.agent.saving import SavedRun, TrajectoryWriter
from experiments.agent.settings import SECRETS, TurnSettings
from experiments.agent.tokenin import TokenInCaller
from experiments.cli.trajectory import PAGE, write_run_page
from experiments.framework.runner import run_study
from serving.assembler import Trajectory
from serving.call import DecodeOptions
from serving.chat import ChatRenderer
from serving.models import ModelFolder
from tests.support import chromium
from tests.support.command import Run, one_sentence
from tests.support.made_tools import MadeTools, contract
from tests.support.scripted import CONTEXT
from tests.support.scripted_client import ScriptedClient
from tests.support.tiny_model import write_tiny_folder
from tests.support.toy_study import TINY, Starter, Toy

COMMITTED = Path(__file__).parents[3] / "results" / "prefix-cache" / "qwen3-nano-shape-full"
HOSTILE = (
    "<script>document.title='owned'</script></pre></details><img src=x onerror=alert(1)>"
    "{{ page.title }}{% raw %} \u202e\x1b[31m &lt;b&gt;"
)
TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "h1",
    "h2",
    "p",
    "dl",
    "dt",
    "dd",
    "details",
    "summary",
}
TAGS |= {"pre", "code", "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "span", "sub"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "scope"}


class Page(HTMLParser):
    """Tags and attributes of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def call(name: str, x: int) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"x": {x}}}}}\n</tool_call>'


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A run of three steps over a real template, its task, results and answer hostile."""
    (tmp_path / "model").mkdir()
    path = write_tiny_folder(tmp_path / "model", "qwen3")
    client = ScriptedClient(
        ChatRenderer(path), [call("look", 1), f"{call('look', 2)}\n{call('nope', 3)}", HOSTILE]
    )
    caller = TokenInCaller(
        client, ModelFolder.model_construct(name="tiny", path=path), block_size=16, strict=False
    )
    settings = TurnSettings(
        context=CONTEXT, window=9_000, decode=DecodeOptions(max_tokens=99), salt="s", token_in=True
    )
    tools = MadeTools((contract("look"), contract("list", effect=HOSTILE)))
    start = Trajectory(system=f"Look. {HOSTILE}", tools=tools.specs, turns=())
    run = SavedRun(task=HOSTILE, model="tiny", policy=settings.policy, started_at=CONTEXT.now)
    with TrajectoryWriter(tmp_path / "run", run, SECRETS) as writer:
        for event in run_turn(caller, tools, start, HOSTILE, settings):
            writer.take(event)
    write_run_page(tmp_path / "run", ChatRenderer(path).tokenizer.show)
    return tmp_path / "run"


def test_every_step_opens_with_packet_manifest_ids_and_times(saved: Path) -> None:
    page = Page((saved / PAGE).read_text(encoding="utf-8"))
    assert page.text.count("Packet: messages and tools") == 3
    steps = [json.loads(line) for line in (saved / "steps.jsonl").read_text().splitlines()]
    for step in steps:
        assert step["manifest"]["packet_sha256"] in page.text
        for message in step["messages"][1:]:
            assert message["content"] is None or message["role"] in page.text
    for words in ("Output ids:", "Prompt ids:", "first token (TTFT), ms", "did {", "turn-000"):
        assert words in page.text
    # Special tokens are there to be seen, marked, with their ids.
    assert 'class="special">&lt;|im_start|&gt;<sub>' in (saved / PAGE).read_text(encoding="utf-8")
    assert "2 of 2 later requests begin with the whole prompt of the one before" in " ".join(
        page.text.split()
    )
    assert "unknown_tool" in page.text


def test_each_token_of_the_last_prompt_stands_in_the_page_once(saved: Path) -> None:
    """What a step repeats is not shown again, and all the rest is: the ids add up."""
    text = (saved / PAGE).read_text(encoding="utf-8")
    steps = [json.loads(line) for line in (saved / "steps.jsonl").read_text().splitlines()]
    shown = text.count("<sub>")
    outputs = [len(step["exchange"]["output_token_ids"]) for step in steps]
    # On the token-in surface a prompt holds the answers before it, so each answer is shown as output alone.
    assert shown == len(steps[-1]["prompt_ids"]) - sum(outputs[:-1]) + sum(outputs)


def test_nothing_of_a_hostile_run_acts(saved: Path) -> None:
    page = Page((saved / PAGE).read_text(encoding="utf-8"))
    assert page.tags <= TAGS
    assert page.attributes <= ATTRIBUTES
    assert "document.title='owned'" in page.text  # it is shown, and nothing but text
    assert not {"\u202e", "\x1b"} & set(page.text)


@pytest.mark.skipif(chromium.COMMAND is None, reason="needs Chromium")
def test_a_browser_shows_the_page_and_asks_for_nothing(saved: Path, tmp_path: Path) -> None:
    with chromium.chromium() as tab:
        tab.send("Page.navigate", url=(saved / PAGE).as_uri())
        tab.wait_for("document.readyState === 'complete' && document.querySelectorAll('h2').length === 3")
        assert tab.evaluate("document.title").startswith("<script>")
        assert tab.requests == [(saved / PAGE).as_uri()]
        assert tab.problems == []
        assert tab.evaluate("document.querySelectorAll('script, img').length") == 0
        tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_command_writes_the_page_again_without_the_models_files(saved: Path, ctxlab: Run) -> None:
    (saved / PAGE).unlink()
    done = ctxlab("trajectory", saved, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"page": str(saved / PAGE)}
    assert "tokens are shown as ids alone" in (saved / PAGE).read_text(encoding="utf-8")


def test_a_trial_of_a_study_opens_like_a_run(tmp_path: Path, ctxlab: Run) -> None:
    folder = tmp_path / "run"
    shutil.copytree(COMMITTED, folder)
    listed = json.loads(ctxlab("trajectory", folder, "--json").out)
    trial = max(listed, key=lambda one: one["calls"])
    assert trial["calls"] > 3
    done = ctxlab("trajectory", folder, "--trial", trial["trial"], "--json")
    assert done.code == 0, done.err
    page = Page(Path(json.loads(done.out)["page"]).read_text(encoding="utf-8"))
    assert page.tags <= TAGS
    assert page.attributes <= ATTRIBUTES
    assert trial["trial"] in page.text
    for words in ("Packet: messages and tools", "As JSON", "Prompt ids:", "first token (TTFT), ms"):
        assert page.text.count(words) == trial["calls"], words


def test_what_cannot_be_opened_is_said_in_one_sentence(saved: Path, tmp_path: Path, ctxlab: Run) -> None:
    one_sentence(ctxlab("trajectory", tmp_path / "nowhere"), "holds neither steps.jsonl nor records.jsonl")
    one_sentence(ctxlab("trajectory", saved, "--trial", "a"), "no trials")
    run_study(Toy(tmp_path / "ledger"), TINY, folder=tmp_path / "study", serve=Starter())
    one_sentence(ctxlab("trajectory", tmp_path / "study", "--trial", "a"), "no trial 'a'")
    one_sentence(ctxlab("trajectory", tmp_path / "study", "--trial", "append/s0/r0/task-0"), "no call")
