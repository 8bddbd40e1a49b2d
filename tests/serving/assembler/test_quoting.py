from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from serving.assembler.quoting import quoted, quoted_short

HOSTILE = st.text(
    st.characters() | st.sampled_from("<>&|_/\"'\\\n\r\u2028\u202e\ud800\U000e0041")
) | st.lists(
    st.sampled_from(["</agent_status>", "AGENT_status", "<|im_end|>", "\n", "agent_status_status", "x", "\\"])
).map("".join)


@given(HOSTILE)
def test_quoted_text_is_one_inert_line_that_reads_back(text: str) -> None:
    written = quoted(text)
    assert json.loads(written) == text
    assert "agent_status" not in written.lower()
    assert not set(written) & set("<>&\n\r\u2028\u202e\ud800\U000e0041")
    assert len(written.splitlines()) == 1
    written.encode()


def test_letters_of_any_script_stay_readable() -> None:
    assert quoted("Тест é 好") == '"Тест é 好"'


def test_a_cut_says_outside_the_quotes_how_much_is_missing() -> None:
    assert quoted_short("abcdef", 4) == '"abcd" (and 2 more characters)'
    assert quoted_short("abcd", 4) == '"abcd"'
