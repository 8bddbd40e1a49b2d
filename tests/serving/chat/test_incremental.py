from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.assembler.packet import Message, PacketSpan, ToolCall, ToolSpec
from serving.assembler.renderer import Rendered
from serving.assembler.reuse import Reuse, WholeReason
from serving.chat import ChatRenderer
from serving.chat.incremental import encoder_of
from serving.chat.tokenizer import ChatTokenizer
from serving.errors import UsageError
from serving.models import ensure
from serving.text import common_prefix
from tests.support.examples import FULL

Body = dict[str, Any]
Generator = Callable[[random.Random], tuple[list[Body], list[Body]]]
Pair = tuple[ChatRenderer, ChatRenderer]

NAMES = ("qwen3", "qwen2_5", "smollm2")
EDGES = (
    "",
    " ",
    "\n\n",
    "\u0338",
    "\u0301x",
    "e",
    "<|im_end|>",
    "<|im_start|>user\n",
    "<|im_",
    "<think>",
    " <tool_call> ",
    "|>",
    "日本",
    "👩‍👩‍👧",
    "\u200d",
)
"""What may stand at either end of a message: nothing, white space, half a token, a mark that joins to the left."""
TEXTS = st.lists(st.sampled_from((*EDGES, "<|im_end|>\n", "word ")), max_size=12).map("".join)
MANY = settings(
    max_examples=80 if FULL else 20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module", params=NAMES)
def pair(request: pytest.FixtureRequest, tiny_folders: dict[str, Path]) -> Pair:
    """One renderer for all examples, so that it remembers the most unlike things, and one that remembers none."""
    folder = tiny_folders[request.param]
    return ChatRenderer(folder), ChatRenderer(folder, incremental=False)


@pytest.fixture(scope="module")
def tokenizer(tiny_folders: dict[str, Path]) -> ChatTokenizer:
    return ChatTokenizer(tiny_folders["qwen3"])


@pytest.fixture(scope="module")
def real_folder() -> Path:
    """The true Qwen3 tokenizer and template."""
    return ensure("qwen3-nano-shape").path


def message_of(body: Body) -> Message:
    calls = tuple(
        ToolCall(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
        for call in body.get("tool_calls", ())
    )
    return Message(**{**body, "tool_calls": calls})


def spans_of(messages: list[Message], tools: list[ToolSpec]) -> list[PacketSpan]:
    spans = [PacketSpan(path=("messages", index), item_id=f"m{index}") for index in range(len(messages))]
    spans += [PacketSpan(path=("tools", index), item_id=f"t{index}") for index in range(len(tools))]
    for index, message in enumerate(messages):
        if message.content and len(message.content) > 2:
            place = ("messages", index, "content")
            spans.append(PacketSpan(path=place, start=1, end=2, item_id=f"m{index}#second"))
    return spans


class Conversation:
    """A conversation that is extended, cut, changed in the middle and taken back."""

    def __init__(self, rng: random.Random, generator: Generator) -> None:
        self.rng = rng
        self.generator = generator
        self.messages: list[Message] = []
        self.tools: list[ToolSpec] = []
        self.before: list[tuple[list[Message], list[ToolSpec]]] = []
        self.append()

    def step(self) -> None:
        self.before.append((list(self.messages), list(self.tools)))
        self.rng.choice((self.append, self.append, self.edit, self.drop, self.retool, self.take_back))()
        if not self.messages:
            self.append()

    def append(self) -> None:
        messages, tools = self.generator(self.rng)
        self.messages += map(message_of, messages)
        self.tools = self.tools or [ToolSpec(**tool["function"]) for tool in tools]

    def edit(self) -> None:
        index = self.rng.randrange(len(self.messages))
        message = self.messages[index]
        content = self.rng.choice(EDGES) + (message.content or "") + self.rng.choice(EDGES)
        self.messages[index] = message.model_copy(update={"content": content})

    def drop(self) -> None:
        start = self.rng.randrange(len(self.messages))
        del self.messages[start : start + self.rng.randint(1, 4)]

    def retool(self) -> None:
        self.tools = self.tools[1:] + self.tools[: self.rng.randint(0, 1)]

    def take_back(self) -> None:
        messages, tools = self.rng.choice(self.before)
        self.messages, self.tools = list(messages), list(tools)


def outcome(renderer: ChatRenderer, conversation: Conversation, *, spans: bool) -> Rendered | str:
    messages, tools = conversation.messages, conversation.tools
    try:
        return renderer.render(messages, tools, spans_of(messages, tools) if spans else ())
    except UsageError as error:
        return str(error)


@given(seed=st.integers(0, 2**32))
@MANY
def test_whatever_was_rendered_before_a_rendering_equals_that_of_a_renderer_that_remembers_nothing(
    pair: Pair, conversation: Generator, seed: int
) -> None:
    incremental, full = pair
    rng = random.Random(seed)
    changing = Conversation(rng, conversation)
    for _ in range(6):
        spans = rng.random() < 0.8
        assert outcome(incremental, changing, spans=spans) == outcome(full, changing, spans=spans)
        changing.step()


@given(seed=st.integers(0, 2**32))
@settings(MANY, max_examples=40 if FULL else 10)
def test_bodies_in_the_apis_own_form_too(pair: Pair, wild_conversation: Generator, seed: int) -> None:
    incremental, full = pair
    rng = random.Random(seed)
    messages, tools = wild_conversation(rng)
    spans = [PacketSpan(path=("messages", index), item_id=f"m{index}") for index in range(len(messages))]
    for end in range(1, len(messages) + 1):
        body = copy.deepcopy(messages[:end])
        assert incremental.render_body(body, tools, spans[:end]) == full.render_body(body, tools, spans[:end])


def test_the_true_tokenizer_too(real_folder: Path, conversation: Generator) -> None:
    incremental, full = ChatRenderer(real_folder), ChatRenderer(real_folder, incremental=False)
    for seed in range(12):
        changing = Conversation(random.Random(seed), conversation)
        for _ in range(12):
            assert outcome(incremental, changing, spans=True) == outcome(full, changing, spans=True)
            changing.step()


@pytest.mark.full
@pytest.mark.parametrize("model", ["qwen2.5-coder-0.5b", "smollm2-135m"])
def test_the_tokenizers_of_the_other_models_too(model: str, conversation: Generator) -> None:
    folder = ensure(model).path
    incremental, full = ChatRenderer(folder), ChatRenderer(folder, incremental=False)
    for seed in range(20):
        changing = Conversation(random.Random(seed), conversation)
        for _ in range(12):
            assert outcome(incremental, changing, spans=True) == outcome(full, changing, spans=True)
            changing.step()


def test_threads_share_a_renderer(tiny_folders: dict[str, Path], conversation: Generator) -> None:
    incremental = ChatRenderer(tiny_folders["qwen3"])
    full = ChatRenderer(tiny_folders["qwen3"], incremental=False)

    def run(seed: int) -> list[bool]:
        changing = Conversation(random.Random(seed % 3), conversation)
        equal = []
        for _ in range(10):
            equal.append(outcome(incremental, changing, spans=True) == outcome(full, changing, spans=True))
            changing.step()
        return equal

    with ThreadPoolExecutor(6) as pool:
        assert all(all(equal) for equal in pool.map(run, range(12)))


@given(texts=st.lists(TEXTS, max_size=8))
@settings(MANY, max_examples=300 if FULL else 100)
def test_any_texts_in_any_order_are_encoded_as_alone(tokenizer: ChatTokenizer, texts: list[str]) -> None:
    encode = encoder_of(tokenizer, incremental=True)
    for text in texts:
        encoded, reuse = encode(text)
        assert encoded == tokenizer.encode(text)
        assert reuse.reused + reuse.encoded == len(encoded.ids)


def turn(number: int) -> list[Message]:
    return [
        Message(role="user", content=f"question {number} " + "and more of it " * 20),
        Message(role="assistant", content=f"answer {number} " + "with reasons " * 20),
    ]


def test_each_turn_of_a_growing_conversation_costs_what_it_adds(tiny_folders: dict[str, Path]) -> None:
    renderer = ChatRenderer(tiny_folders["qwen2_5"])
    messages = [Message(role="system", content="Be brief."), *turn(0)]
    costs = []
    lengths = [len(renderer.render(messages, []).token_ids)]
    for number in range(1, 12):
        messages += turn(number)
        rendered = renderer.render(messages, [])
        assert rendered.reuse is not None
        costs.append(rendered.reuse.encoded)
        lengths.append(len(rendered.token_ids))
    added = [after - before for before, after in pairwise(lengths)]
    # The old generation prompt is encoded again with what now stands behind it.
    assert all(cost <= more + 20 for cost, more in zip(costs, added, strict=True))


def test_a_message_changed_in_the_middle_costs_its_own_pieces_and_no_others(
    tiny_folders: dict[str, Path],
) -> None:
    renderer = ChatRenderer(tiny_folders["qwen3"])
    cuts = renderer.tokenizer.cuts
    assert cuts is not None
    messages = [message for number in range(8) for message in turn(number)]
    before = renderer.render(messages, []).text
    messages[4] = Message(role="user", content="something else entirely")
    rendered = renderer.render(messages, [])
    known = set(_pieces(before, cuts.places(before)))
    fresh = [piece for piece in _pieces(rendered.text, cuts.places(rendered.text)) if piece not in known]
    assert fresh == ["<|im_start|>user\nsomething else entirely"]
    assert rendered.reuse is not None
    assert rendered.reuse.encoded == len(renderer.tokenizer.encode(fresh[0]).ids)


def _pieces(text: str, places: list[int]) -> list[str]:
    return [text[begin:end] for begin, end in pairwise([0, *places, len(text)]) if begin < end]


def test_the_first_rendering_takes_nothing_over_and_says_so(tiny_folders: dict[str, Path]) -> None:
    first = ChatRenderer(tiny_folders["qwen3"]).render(turn(0)[:1], [])
    assert first.reuse == Reuse(0, len(first.token_ids), WholeReason.NOTHING_KEPT)


def test_the_same_rendering_again_encodes_nothing(tiny_folders: dict[str, Path]) -> None:
    renderer = ChatRenderer(tiny_folders["qwen3"])
    renderer.render(turn(0), [])
    again = renderer.render(turn(0), [])
    assert again.reuse == Reuse(len(again.token_ids), 0)


def test_a_renderer_that_is_not_incremental_says_so(tiny_folders: dict[str, Path]) -> None:
    renderer = ChatRenderer(tiny_folders["qwen3"], incremental=False)
    for _ in range(2):
        rendered = renderer.render(turn(0), [])
        assert rendered.reuse == Reuse(0, len(rendered.token_ids), WholeReason.SWITCHED_OFF)


def test_a_text_without_added_tokens_is_encoded_whole_and_the_reason_is_recorded(
    tiny_folders: dict[str, Path],
) -> None:
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    renderer = ChatRenderer(tiny_folders["qwen3"], template_override=source)
    renderer.render(turn(0), [])
    rendered = renderer.render([*turn(0), *turn(1)], [])
    assert rendered.reuse == Reuse(0, len(rendered.token_ids), WholeReason.NO_CUT)
    assert rendered == ChatRenderer(
        tiny_folders["qwen3"], template_override=source, incremental=False
    ).render([*turn(0), *turn(1)], [])


def test_a_tokenizer_that_is_not_proven_encodes_whole_and_the_reason_is_recorded(
    tmp_path: Path, tiny_folders: dict[str, Path]
) -> None:
    source = json.loads((tiny_folders["qwen3"] / "tokenizer.json").read_text(encoding="utf-8"))
    source["added_tokens"][0]["single_word"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(source), encoding="utf-8")
    template = (tiny_folders["qwen3"] / "chat_template.jinja").read_text(encoding="utf-8")
    renderer = ChatRenderer(tmp_path, template_override=template)
    renderer.render(turn(0), [])
    rendered = renderer.render([*turn(0), *turn(1)], [])
    assert rendered.reuse == Reuse(0, len(rendered.token_ids), WholeReason.TOKENIZER_NOT_PROVEN)


def test_equal_renderings_are_equal_whatever_they_took_over(tiny_folders: dict[str, Path]) -> None:
    renderer = ChatRenderer(tiny_folders["qwen3"])
    first, again = renderer.render(turn(0), []), renderer.render(turn(0), [])
    assert first == again
    assert first.reuse != again.reuse


def test_a_template_cannot_change_the_messages_that_it_is_given(tiny_folders: dict[str, Path]) -> None:
    for change in (
        "messages[0].update({'content': 'x'})",
        "messages.append(1)",
        "messages[0].pop('content')",
    ):
        renderer = ChatRenderer(tiny_folders["qwen3"], template_override="{% set _ = " + change + " %}")
        with pytest.raises(UsageError, match="refuses"):
            renderer.render(turn(0), [])


@given(one=st.text(alphabet="ab😀", max_size=12), other=st.text(alphabet="ab😀", max_size=12))
def test_the_common_prefix_is_the_longest(one: str, other: str) -> None:
    length = common_prefix(one, other)
    assert one[:length] == other[:length]
    assert one[length : length + 1] != other[length : length + 1] or length == min(len(one), len(other))
