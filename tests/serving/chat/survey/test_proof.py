from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.chat import ChatRenderer
from serving.chat.survey import Kept, Place, Probe, survey_folder, survey_template
from serving.chat.survey.conversations import Habits, Step, steps
from serving.chat.survey.proof import TurnRenderer, prove

APPENDING = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.arguments | tojson }}</call>{% endfor %}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Only ever adds at the end."""


def first_step(probe: Probe) -> Step:
    return steps(probe, Habits(None, takes_system=True))[0]


def test_a_template_that_only_appends_keeps_every_turn_whole() -> None:
    survey = survey_template("appending", APPENDING)
    kept = {probe: probed.kept for probe, probed in survey.probes.items() if probed.kept is not None}
    assert set(kept.values()) == {Kept.ALL}
    assert {Probe.PLAIN_TURNS, Probe.TOOL_LOOP, Probe.PARALLEL_TOOLS, Probe.LATE_SYSTEM} <= set(kept)


@pytest.mark.parametrize(
    ("source", "kept", "place"),
    [
        ("{{ messages | length }} messages\n" + APPENDING, Kept.PART, Place.HEAD),
        (APPENDING.replace("<|end|>", "<|end|>{{ loop.revindex }}"), Kept.PART, Place.HEAD),
        (
            APPENDING.replace("{{ m.content }}", "{{ m.content if not loop.last else m.content | upper }}"),
            Kept.PART,
            Place.HISTORY,
        ),
        (APPENDING.replace("<|assistant|>{%", "<|assistant|>[now]{%"), Kept.PART, Place.GENERATION_PROMPT),
        (APPENDING.replace("<|end|>", "{{ '' if loop.last else '.' }}<|end|>"), Kept.PART, Place.HISTORY),
        (
            APPENDING.replace(
                "{{ m.content }}", "{{ m.content if loop.last or m.role != 'assistant' else '…' }}"
            ),
            Kept.PROMPT,
            Place.OUTPUT,
        ),
    ],
    ids=["count in the head", "distance", "loud last message", "prefill", "late dot", "answers hidden"],
)
def test_a_template_that_rewrites_is_caught_where_it_does(source: str, kept: Kept, place: Place) -> None:
    proof = prove(TurnRenderer.of(source, {}), first_step(Probe.PLAIN_TURNS), {}, None)
    assert proof.kept is kept
    assert proof.difference is not None and proof.difference.place is place
    assert proof.stored is not None and proof.shared is not None and proof.shared <= proof.stored


def test_the_end_of_turn_token_is_sampled_and_never_stored() -> None:
    """gpt-oss closes its last answer with another token than its earlier ones, and loses nothing by it."""
    closing = APPENDING.replace("<|end|>", "{{ '<|return|>' if loop.last else '<|end|>' }}")
    answered = closing.replace("loop.last", "loop.last and m.role == 'assistant'")
    proof = prove(TurnRenderer.of(answered, {}), first_step(Probe.PLAIN_TURNS), {}, None)
    assert proof.kept is Kept.ALL


def test_a_call_that_is_shown_nowhere_is_no_kept_turn_though_the_text_goes_on() -> None:
    silent = APPENDING.replace("{{ c.function.arguments | tojson }}", "").replace("<call></call>", "")
    proof = prove(TurnRenderer.of(silent, {}), first_step(Probe.TOOL_LOOP), {}, None)
    assert proof.kept is Kept.PROMPT
    assert proof.not_shown == ("argument text 1",)


def test_a_refusal_keeps_the_templates_own_words() -> None:
    strict = APPENDING + "{% if messages | length > 2 %}{{ raise_exception('one question only') }}{% endif %}"
    proof = prove(TurnRenderer.of(strict, {}), first_step(Probe.PLAIN_TURNS), {}, None)
    assert proof.kept is Kept.REFUSED
    assert "one question only" in str(proof.refusal)


tags = st.text(
    st.characters(codec="ascii", categories=["L", "N", "P", "S"], exclude_characters="{}%#'\"\\<>")
)


@settings(max_examples=100)
@given(before=tags, after=tags, prompt=tags, break_first=st.booleans())
def test_any_markup_that_only_appends_is_proven_to(
    before: str, after: str, prompt: str, break_first: bool
) -> None:
    line = "\\n" if break_first else ""
    source = (
        f"{{% for m in messages %}}<|{before}{{{{ m.role }}}}|>{{{{ m.content }}}}<|{after}end|>{{{{ '{line}' }}}}"
        f"{{% endfor %}}{{% if add_generation_prompt %}}<|{before}assistant|>{{% endif %}}"
    )
    step = first_step(Probe.PLAIN_TURNS)
    assert prove(TurnRenderer.of(source, {}), step, {}, None).kept is Kept.ALL
    prefilled = source.replace("assistant|>{%", f"assistant|><{prompt}>{{%")
    assert prove(TurnRenderer.of(prefilled, {}), step, {}, None).kept is Kept.PART


def test_the_ids_of_a_proof_are_those_of_the_renderer(tiny_folders: dict[str, Path]) -> None:
    folder = tiny_folders["qwen3"]
    survey = survey_folder("qwen3", folder)
    renderer = ChatRenderer(folder, dialect="plain", template_kwargs={"enable_thinking": False})
    proofs = survey.probes[Probe.THINKING_OFF].proofs
    for proof, step in zip(proofs, steps(Probe.THINKING_OFF, Habits("reasoning_content", True)), strict=True):
        now = renderer.render_body(step.messages, step.tools).token_ids
        then = renderer.render_body(step.following, step.following_tools).token_ids
        assert proof.kept is Kept.PART
        assert proof.shared == next(i for i, (a, b) in enumerate(zip(now, then, strict=False)) if a != b)
