from __future__ import annotations

import contextlib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import UsageError
from serving.text import common_prefix, find_surrogate, require_unicode_text, server_root, visible


@given(st.text(alphabet=st.characters()))
def test_exactly_the_text_that_utf8_can_carry_passes(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        with pytest.raises(UsageError, match=f"character {error.start} is the unpaired surrogate"):
            require_unicode_text(text, "the message")
    else:
        assert require_unicode_text(text, "the message") is text


def test_the_first_surrogate_is_found_with_its_name() -> None:
    assert find_surrogate("ab\ud83d\udc00") == (2, "U+D83D")
    assert find_surrogate("🙂") is None


def test_the_error_names_the_place_and_the_character() -> None:
    with pytest.raises(UsageError, match=r"in --system, but character 2 is .* U\+D83D"):
        require_unicode_text("ab\ud83d", "--system")


anything = st.text(st.characters(codec=None) | st.sampled_from("\x1b\x9b\x07\r\u202e\u200b\u2028[]31m\n\t"))


@given(anything, st.booleans())
def test_nothing_that_a_terminal_obeys_or_a_reader_cannot_see_is_left(text: str, newlines: bool) -> None:
    shown = visible(text, newlines=newlines)
    kept = "\n\t" if newlines else "\t"
    left = {unicodedata.category(char) for char in shown if char not in kept}
    assert not left & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    shown.encode()


@given(st.lists(anything, max_size=4))
def test_pieces_of_a_stream_are_treated_as_the_whole(pieces: list[str]) -> None:
    assert "".join(map(visible, pieces)) == visible("".join(pieces))


def test_ordinary_text_stays_as_it_is() -> None:
    assert visible("naïve 日本 🙂\n\t[bold]x[/] \\[y] :smile:") == "naïve 日本 🙂\n\t[bold]x[/] \\[y] :smile:"


def test_hidden_characters_are_seen_and_not_obeyed() -> None:
    assert visible("\x1b]0;t\x07\x7f\x9b2J") == "\\u001b]0;t\\u0007\\u007f\\u009b2J"
    assert visible("a\u202eb\u200bc\u2029\ud800\U000e0041") == "a\\u202eb\\u200bc\\u2029\\ud800\\U000e0041"
    assert visible("\ue000\u2065") == "\\ue000\\u2065"  # a private one, and one that no font shows
    assert visible("a\nb\tc", newlines=False) == "a\\u000ab\tc"


@pytest.mark.parametrize(
    "root", ["http://h", "https://h:1/api", "http://[::1]:8000", "http://127.0.0.1:8000"]
)
@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/"])
def test_a_servers_root_is_found_behind_every_usual_ending(root: str, tail: str) -> None:
    assert server_root(root + tail) == root


@pytest.mark.parametrize(
    "url",
    [
        "h:8000",
        "ftp://h",
        "http://",
        "http://:80",
        "http://[::1",
        "http://[zz]",
        "http://h:x",
        "http://h:99999",
        "http://a..b",
        "http://é",
        "http://h/\n",
        "http://h\ud800",
        "http://h?q",
        "http://h#f",
    ],
)
def test_what_no_client_could_use_is_no_servers_url(url: str) -> None:
    with pytest.raises(UsageError, match="Expected a server's URL"):
        server_root(url)


@given(st.text() | st.text().map("http://{}".format))
def test_any_text_is_a_url_or_is_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert not server_root(text).endswith("/")


@given(
    st.text("ab", max_size=20),
    st.integers(0, 300),
    st.text("ab", max_size=20),
    st.text("ab", max_size=20),
    st.data(),
)
def test_a_common_prefix_is_alike_and_cannot_be_longer_for_texts_as_for_lists(
    word: str, times: int, one: str, other: str, data: st.DataObject
) -> None:
    left, right = word * times + one, word * times + other
    found = common_prefix(left, right)
    assert left[:found] == right[:found]
    assert found in (len(left), len(right)) or left[found] != right[found]
    known = data.draw(st.integers(0, found))
    assert common_prefix(left, right, start=known) == found
    assert common_prefix(list(left), list(right), start=known) == found
