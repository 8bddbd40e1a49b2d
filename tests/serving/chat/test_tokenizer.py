from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from serving.chat.tokenizer import ChatTokenizer, load_template, refuse_surrogates
from serving.errors import UsageError


@pytest.fixture(scope="module")
def tokenizer(tiny_folders: dict[str, Path]) -> ChatTokenizer:
    return ChatTokenizer(tiny_folders["qwen3"])


def test_added_tokens_are_recognised_and_nothing_is_added(tokenizer: ChatTokenizer) -> None:
    added = tokenizer.added_tokens()
    encoded = tokenizer.encode("<|im_start|>a<|im_end|>")
    assert (encoded.ids[0], encoded.ids[-1]) == (added["<|im_start|>"], added["<|im_end|>"])
    assert encoded.starts == (0, 12, 13)


@given(text=st.text(alphabet=st.sampled_from("ab é日😀\n "), max_size=20))
def test_starts_rise_from_the_first_character_and_a_split_character_repeats_its_place(
    tokenizer: ChatTokenizer, text: str
) -> None:
    encoded = tokenizer.encode(text)
    assert list(encoded.starts) == sorted(encoded.starts)
    assert all(0 <= start < len(text) for start in encoded.starts)
    assert not text or encoded.starts[0] == 0


ASCII = st.text(st.characters(max_codepoint=127), max_size=20) | st.sampled_from(["<|im_end|>", "<think>"])


@given(text=st.lists(ASCII, max_size=6).map("".join))
def test_ascii_takes_the_shorter_way_to_the_same_ids_and_places(
    tokenizer: ChatTokenizer, tiny_folders: dict[str, Path], text: str
) -> None:
    plain = Tokenizer.from_file(str(tiny_folders["qwen3"] / "tokenizer.json")).encode(text)
    starts = tuple(start for start, _ in plain.offsets)
    assert tokenizer.encode(text) == (tuple(plain.ids), starts)


def test_a_token_that_is_ascii_only_when_normalised_is_still_found(
    tmp_path: Path, tiny_folders: dict[str, Path]
) -> None:
    tokenizer = Tokenizer.from_file(str(tiny_folders["qwen3"] / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("<\N{KELVIN SIGN}>", normalized=True)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert ChatTokenizer(tmp_path).encode("a<K>b").ids == tuple(tokenizer.encode("a<K>b").ids)
    assert tokenizer.token_to_id("<\N{KELVIN SIGN}>") in tokenizer.encode("a<K>b").ids


def test_every_added_token_is_named_by_its_text_with_its_mark(tokenizer: ChatTokenizer) -> None:
    assert [token.text for token in tokenizer.added] == sorted(tokenizer.added_tokens())
    marks = {token.text: token.special for token in tokenizer.added}
    assert (marks["<|im_end|>"], marks["<tool_call>"]) == (True, False)


def test_a_leading_space_is_a_tokens_first_byte_also_where_the_model_trims_offsets(
    tmp_path: Path, tiny_folders: dict[str, Path]
) -> None:
    source = json.loads((tiny_folders["qwen3"] / "tokenizer.json").read_text(encoding="utf-8"))
    trimming = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    (tmp_path / "tokenizer.json").write_text(json.dumps({**source, "post_processor": trimming}))
    text = "the message tool"
    plain = ChatTokenizer(tiny_folders["qwen3"]).encode(text)
    assert ChatTokenizer(tmp_path).encode(text) == plain
    assert any(text[start] == " " for start in plain.starts)


def test_shown_tokens_mark_the_added_ones(tokenizer: ChatTokenizer) -> None:
    shown = tokenizer.show(tokenizer.encode("<think>a").ids)
    assert [(token.piece, token.special) for token in shown] == [("<think>", True), ("a", False)]


def test_named_tokens_are_what_transformers_gives_templates(tmp_path: Path, tokenizer: ChatTokenizer) -> None:
    assert tokenizer.named_tokens() == {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        ChatTokenizer(tmp_path)


@pytest.mark.parametrize("content", [b"{}", b"", b"\xff", b"[]"])
def test_a_tokenizer_file_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"Expected a tokenizer in .*tokenizer\.json"):
        ChatTokenizer(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]"])
def test_a_tokenizers_configuration_that_is_none_is_named(
    tmp_path: Path, tiny_folders: dict[str, Path], content: bytes
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((tiny_folders["qwen3"] / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"tokenizer_config\.json"):
        ChatTokenizer(tmp_path)


def test_a_template_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"chat_template\.jinja"):
        load_template(tmp_path, {}, with_tools=False)


def test_only_unpaired_surrogates_are_refused() -> None:
    refuse_surrogates("😀")
    with pytest.raises(UsageError, match=r"U\+DC00 at character 1"):
        refuse_surrogates("a\udc00")


def test_the_template_file_wins_and_tools_choose_their_own_template(tmp_path: Path) -> None:
    config = {"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]}
    assert load_template(tmp_path, config, with_tools=False) == "D"
    assert load_template(tmp_path, config, with_tools=True) == "T"
    assert load_template(tmp_path, {"chat_template": "S"}, with_tools=True) == "S"
    (tmp_path / "chat_template.jinja").write_text("F")
    assert load_template(tmp_path, config, with_tools=True) == "F"
    with pytest.raises(UsageError, match="chat template"):
        load_template(tmp_path / "none", {}, with_tools=False)
