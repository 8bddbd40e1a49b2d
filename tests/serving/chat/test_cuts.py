from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from serving.chat.cuts import cuts_of

# Tokens that overlap, contain and follow one another, with white space at either side, words and combining marks.
CONTENTS = (
    "<a>",
    "a>b",
    "<a>b",
    ">",
    "<",
    "\n\n",
    " <s>",
    "<s> ",
    "word",
    "▁x",
    "\u0338>",
    "é",
    "ab",
    "<a",
    "[X]",
)
TEXTS = st.lists(
    st.sampled_from(
        (*CONTENTS, " ", "  ", "\n", "a", "b", "x", "\u0338", "\u0301", "e", "1", "日", "＜a＞", "É")
    ),
    max_size=14,
).map("".join)
TOKENS = st.builds(
    AddedToken,
    content=st.sampled_from(CONTENTS),
    single_word=st.just(False),
    lstrip=st.booleans(),
    rstrip=st.booleans(),
    normalized=st.booleans(),
    special=st.booleans(),
)
NORMALIZERS = (
    None,
    normalizers.NFC(),
    normalizers.NFKC(),
    normalizers.Lowercase(),
    normalizers.Strip(),
    normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
)
PRE_TOKENIZERS = (
    None,
    pre_tokenizers.ByteLevel(add_prefix_space=True),
    pre_tokenizers.ByteLevel(add_prefix_space=False),
    pre_tokenizers.Metaspace(prepend_scheme="first"),
    pre_tokenizers.Metaspace(prepend_scheme="always"),
    pre_tokenizers.Metaspace(prepend_scheme="never"),
    pre_tokenizers.Whitespace(),
    pre_tokenizers.Split(Regex(r"\s+(?!\S)|\S+$|.{3}"), behavior="isolated"),
    pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.Digits()]),
)
# Every character is a token, and pairs merge, so that tokens do form across any place that is no true cut.
LETTERS = sorted(
    {*"".join(CONTENTS), *" \nabxe1日＜＞É▁Ġé\u0301\u0338fi", *pre_tokenizers.ByteLevel.alphabet()}
)


def _bpe() -> models.BPE:
    pairs = [(a, b) for a in "<>ab ▁Ġx\n" for b in "<>ab ▁Ġx\n"]
    vocabulary = {piece: index for index, piece in enumerate([*LETTERS, *(a + b for a, b in pairs)])}
    return models.BPE(vocab=vocabulary, merges=pairs, unk_token="a", byte_fallback=False)


def _unigram() -> models.Unigram:
    return models.Unigram(
        [(piece, -1.0 - index % 7) for index, piece in enumerate([*LETTERS, "ab", "<a", "> "])], 0
    )


def tokenizer_of(
    tokens: Sequence[AddedToken], normalizer: int, pre_tokenizer: int, unigram: bool
) -> Tokenizer:
    tokenizer = Tokenizer(_unigram() if unigram else _bpe())
    if (chosen := NORMALIZERS[normalizer]) is not None:
        tokenizer.normalizer = chosen
        # Of a token that its normaliser leaves nothing of, `tokenizers` finds ever more, until the memory is full.
        tokens = [token for token in tokens if not token.normalized or chosen.normalize_str(token.content)]
    if (splitter := PRE_TOKENIZERS[pre_tokenizer]) is not None:
        tokenizer.pre_tokenizer = splitter
    tokenizer.add_tokens(list(tokens))
    return tokenizer


def encoded(tokenizer: Tokenizer, text: str, shift: int = 0) -> tuple[list[int], list[int]]:
    encoding = tokenizer.encode(text, add_special_tokens=False)
    return list(encoding.ids), [start + shift for start, _ in encoding.offsets]


@given(
    tokens=st.lists(TOKENS, max_size=6, unique_by=lambda token: token.content),
    normalizer=st.integers(0, len(NORMALIZERS) - 1),
    pre_tokenizer=st.integers(0, len(PRE_TOKENIZERS) - 1),
    unigram=st.booleans(),
    text=TEXTS,
)
@settings(max_examples=800, suppress_health_check=[HealthCheck.too_slow])
def test_parts_between_cuts_encoded_alone_give_the_ids_and_places_of_the_whole(
    tokens: list[AddedToken], normalizer: int, pre_tokenizer: int, unigram: bool, text: str
) -> None:
    tokenizer = tokenizer_of(tokens, normalizer, pre_tokenizer, unigram)
    try:
        whole = encoded(tokenizer, text)
    except BaseException as error:
        # Where a normaliser changes the length of what stands before a normalised token, `tokenizers` fails itself.
        if type(error).__name__ != "PanicException":
            raise
        reject()
    cuts = cuts_of(tokenizer)
    assert cuts is not None
    edges = [0, *(place for place in cuts.places(text) if place), len(text)]
    ids: list[int] = []
    starts: list[int] = []
    for begin, end in pairwise(edges):
        part = encoded(tokenizer, text[begin:end], begin)
        ids += part[0]
        starts += part[1]
    assert (ids, starts) == whole


@given(tokens=st.lists(TOKENS, max_size=6, unique_by=lambda token: token.content), text=TEXTS, other=TEXTS)
@settings(max_examples=500)
def test_a_cut_stays_one_whatever_follows_beyond_its_reach(
    tokens: list[AddedToken], text: str, other: str
) -> None:
    cuts = cuts_of(tokenizer_of(tokens, 0, 0, unigram=False))
    assert cuts is not None
    for place in cuts.places(text):
        begun = text[: place + cuts.reach]
        if len(begun) == place + cuts.reach:
            assert place in cuts.places(begun + other)
            found = [later for later in cuts.places(begun + other) if later >= place]
            assert cuts.places(begun + other, place) == found


@given(text=TEXTS)
def test_the_search_finds_what_the_tokenizer_finds(text: str) -> None:
    tokens = [
        AddedToken(content, normalized=False) for content in ("<a", "<a>", ">", "a>b", "<a>b", "ab", "[X]")
    ]
    tokenizer = tokenizer_of(tokens, 0, 0, unigram=False)
    cuts = cuts_of(tokenizer)
    assert cuts is not None
    added = set(tokenizer.get_added_tokens_decoder())
    ids, starts = encoded(tokenizer, text)
    assert cuts.places(text) == [start for token, start in zip(ids, starts, strict=True) if token in added]


@pytest.mark.parametrize(
    "flags",
    [{"normalized": True}, {"lstrip": True}],
    ids=lambda flags: next(iter(flags)),
)
def test_a_token_that_may_begin_elsewhere_is_no_place_for_a_cut(flags: dict[str, bool]) -> None:
    tokens = [AddedToken("<a>", **{"normalized": False, **flags}), AddedToken("<s> ", normalized=False)]
    cuts = cuts_of(tokenizer_of(tokens, 1, 0, unigram=False))
    assert cuts is not None
    assert cuts.places("x<a>x<s> x") == [5]


def test_a_token_that_begins_with_white_space_is_no_place_for_a_cut() -> None:
    cuts = cuts_of(tokenizer_of([AddedToken(" <s>", normalized=False)], 0, 0, unigram=False))
    assert cuts is not None
    assert cuts.places("x <s>x") == []


def test_without_added_tokens_there_is_no_cut() -> None:
    cuts = cuts_of(tokenizer_of([], 0, 0, unigram=False))
    assert cuts is not None
    assert cuts.places("x<a>x") == []


def test_tokens_that_must_stand_alone_make_a_tokenizer_unproven() -> None:
    tokens = [AddedToken("word", single_word=True, normalized=False), AddedToken("<a>", normalized=False)]
    assert cuts_of(tokenizer_of(tokens, 0, 0, unigram=False)) is None


def test_a_model_that_drops_merges_at_random_is_unproven() -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")], dropout=0.5))
    assert cuts_of(tokenizer) is None
