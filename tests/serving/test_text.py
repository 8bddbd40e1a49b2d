from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import UsageError
from serving.text import require_unicode_text


@given(st.text(alphabet=st.characters()))
def test_exactly_the_text_that_utf8_can_carry_passes(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        with pytest.raises(UsageError, match=f"character {error.start} is the unpaired surrogate"):
            require_unicode_text(text, "the message")
    else:
        assert require_unicode_text(text, "the message") is text


def test_the_error_names_the_place_and_the_character() -> None:
    with pytest.raises(UsageError, match=r"in --system, but character 2 is .* U\+D83D"):
        require_unicode_text("ab\ud83d", "--system")
