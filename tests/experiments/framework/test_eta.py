from __future__ import annotations

from experiments.framework.eta import in_words


def test_a_duration_is_said_as_a_person_says_it() -> None:
    assert [in_words(s) for s in (4.2, 89, 120, 3900, 7200)] == [
        "4 s",
        "89 s",
        "2 min",
        "65 min",
        "2 h 0 min",
    ]
