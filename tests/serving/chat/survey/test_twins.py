from __future__ import annotations

from pathlib import Path

from serving.chat.survey import Probe, conclusion, pair_twins, survey_template

QWEN3 = (Path(__file__).parents[1] / "templates" / "qwen3.jinja").read_text(encoding="utf-8")


def test_a_twin_is_found_by_its_name_and_what_it_restores_is_counted() -> None:
    always = QWEN3.replace("loop.index0 > ns.last_query_index", "true").replace(
        "loop.last or (not loop.last and reasoning_content)", "true"
    )
    surveys = [
        survey_template("a", QWEN3),
        survey_template("a_training", always),
        survey_template("b", QWEN3),
    ]
    first, alone = pair_twins(surveys)
    assert alone.patched is None and alone.restored() == ()
    assert {Probe.PLAIN_TURNS, Probe.THINKING_OFF, Probe.ECHOED_AFTER_LOOP} <= set(first.restored())
    assert first.lost() == ()
    assert "0 of 2 published templates keep plain turns" in conclusion([first, alone])
    assert "1 of 1 training twins keep turns that their published template loses (a)" in conclusion(
        [first, alone]
    )
