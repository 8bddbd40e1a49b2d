from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.assembler.compaction.grounding import unsupported_words, unwitnessed_archive, unwitnessed_rule

SOURCE = """\
wrote src/app/main.py, sha256 9f86d081884c7d65, at 2026-10-02 14:05:33
measured 1,204 rows in 1.5.2 mode, 310 ms, build-42, ticket LH-4471, -5 degrees
config.max_tokens = 4096; user_id u_17; see https://host.example/a/b?q=1 and ops@example.org
raised HttpTimeout in GitHub action, branch fix/queue-lock
"""


@pytest.mark.parametrize(
    "text",
    [
        "src/app/main.py has sha256 9f86d081884c7d65.",
        "It took 310ms for 1204 rows (1,204).",
        "1. build-42 passed\n2. version 1.5.2 (LH-4471).",
        "config.max_tokens is 4096 for u_17",
        "at 2026-10-02, 14:05:33, it was -5",
        "ops@example.org saw httptimeout on Github: https://host.example/a/b",
        "Two rows and/or three, e.g. re-run the well-known task-blind one.",
        "main.py was written",
    ],
)
def test_what_stands_in_the_source_passes(text: str) -> None:
    assert unsupported_words(text, [SOURCE]) == ()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("sha256 9f86d081884c7d66", "9f86d081884c7d66"),
        ("sha256 9f86d081", "9f86d081"),
        ("it took 31 ms", "31"),
        ("it took 3100 ms", "3100"),
        ("1,205 rows", "1205"),
        ("mode 1.5", "1.5"),
        ("mode 5.2", "5.2"),
        ("mode 1.5.3", "1.5.3"),
        ("ticket LH-447", "LH-447"),
        ("ticket LH-44710", "LH-44710"),
        ("user u_1", "u_1"),
        ("config.max_token", "config.max_token"),
        ("src/app/mian.py", "src/app/mian.py"),
        ("at 2026-10-03", "2026-10-03"),
        ("dev@example.org", "dev@example.org"),
        ("HttpTimeout in GitLab", "GitLab"),
    ],
)
def test_a_corrupted_identifier_or_number_is_found(text: str, word: str) -> None:
    assert unsupported_words(text, [SOURCE]) == (word,)


@settings(max_examples=200)
@given(
    st.lists(st.from_regex(r"[A-Za-z]{1,4}[-_/.]?[0-9]{1,5}", fullmatch=True), min_size=1, max_size=6),
    st.data(),
)
def test_changing_one_digit_of_an_identifier_is_always_found(words: list[str], data: st.DataObject) -> None:
    source = " ; ".join(words)
    assert unsupported_words(source, [source]) == ()
    word = data.draw(st.sampled_from(words))
    at = data.draw(st.sampled_from([index for index, letter in enumerate(word) if letter.isdigit()]))
    other = word[:at] + str((int(word[at]) + 1) % 10) + word[at + 1 :]
    found = unsupported_words(f"it was {other} then", [source])
    assert (found == ()) == (other in words)


RULES = [
    "Files under /srv/legal-hold must never be deleted.\nThe cache is cleared at night.",
    "Deploys need an approval; do not push to main without one.",
]


@pytest.mark.parametrize(
    "text",
    [
        "Never delete files under /srv/legal-hold.",
        "Files in legal-hold must not be deleted. The cache is cleared at night.",
        "You must not push to main without an approval.",
        "The tests were never run.",
        "Tests do not pass.",
    ],
)
def test_a_rule_of_the_source_may_be_told(text: str) -> None:
    assert unwitnessed_rule(text, RULES) is None


@pytest.mark.parametrize(
    "text",
    [
        "The cache must be cleared at night.",
        "Never clear the cache.",
        "All went well. You must not change the database schema.",
        "- Do not touch the payment service.",
        "Vacuuming is strictly forbidden.",
    ],
)
def test_a_rule_that_no_source_states_is_found(text: str) -> None:
    assert unwitnessed_rule(text, RULES) is not None


def test_an_archive_needs_a_source_that_tells_of_it() -> None:
    log = ["wrote the report\nthe dump was saved to disk under dumps", "nothing"]
    assert unwitnessed_archive("The dump was saved under dumps.", log) is None
    for text in (
        "The full transcript has been archived.",
        "Details are available in the archive.",
        "All earlier messages were stored in long-term memory.",
    ):
        assert unwitnessed_archive(f"Fine.\n{text}", log) == text
