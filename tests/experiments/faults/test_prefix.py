"""Where each fault parts one call from the one before, on the token ids of real chat templates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from experiments.faults import FAULTS, FaultContext, build_faults
from serving.assembler import ContextPolicy, Packet, ReasoningEcho, Rendered
from serving.chat import ChatRenderer
from serving.explain import first_break
from serving.prefix import PrefixRequest, Relation, predict
from tests.support.sabotage import BEGIN, CALLS, RUN, sent
from tests.support.tiny_folder import tiny_folder

ON = None
"""The call extends the one before."""
SYSTEM, USER, TOOLS = "message 0 (system)", "message 1 (user)", "the tool list"

BREAKS: dict[str, tuple[str | None, ...]] = {
    "null": (ON,) * 6,
    "clock-in-system-head": (SYSTEM,) * 6,
    "clock-in-system-tail": (SYSTEM,) * 6,
    # At the fourth there is a new question, and the old one is sent without its clock.
    "clock-in-last-user-message": (USER, USER, USER, "framing", "message 10 (user)", "message 10 (user)"),
    # The message before goes without its clock, so its end is where the calls part.
    "clock-in-last-message": ("framing",) * 6,
    "clock-result-refreshed": ("message 3 (tool)",) * 6,
    "clock-by-tool": (ON,) * 6,
    # Calls are nine hours apart: midnight comes before the third and the sixth.
    "date-in-system-head": (ON, ON, SYSTEM, ON, ON, SYSTEM),
    "profile-in-first-message": (ON, ON, USER, ON, ON, USER),
    "profile-counter-in-first-message": (USER,) * 6,
    "tools-shuffled": (TOOLS,) * 6,
    "tools-by-use": (TOOLS, TOOLS, TOOLS, ON, ON, TOOLS),
    "tools-only-relevant": (TOOLS,) * 6,
    "tools-appended": (TOOLS, TOOLS, TOOLS, ON, ON, ON),
    "sliding-window": (ON, ON, "message 1 (assistant)", "message 1 (assistant)", ON, "message 1 (assistant)"),
    "sliding-window-10": (ON, ON, ON, ON, "message 1 (assistant)", "message 1 (assistant)"),
    "text-transcript": (USER,) * 6,
    "text-transcript-moving-head": (USER,) * 6,
    "tool-result-as-user": (ON,) * 6,
    "late-system-message": tuple(f"message {n} (assistant)" for n in (2, 4, 7, 9, 11, 13)),
    "parallel-results-swapped": (ON,) * 6,
    # Two arguments come in with the second step; a drawn order may be that of the call before.
    "arguments-reserialised": (ON, ON, ON, "message 4 (assistant)", "message 4 (assistant)", ON),
    "reasoning-dropped": (ON,) * 6,
    "reasoning-echoed": (ON,) * 6,
    "replacements-rotated": (ON, *["message 3 (tool)"] * 5),
}

Renderers = Callable[[str], ChatRenderer]


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> Renderers:
    folders = tmp_path_factory.mktemp("models")
    made = {name: ChatRenderer(tiny_folder(folders / name, name)) for name in ("qwen2_5", "qwen3")}
    return made.__getitem__


def rendered(renderer: ChatRenderer, packet: Packet) -> Rendered:
    return renderer.render(packet.messages, packet.tools, packet.spans)


def shared(before: Rendered, after: Rendered) -> int:
    _, second = predict(
        [PrefixRequest(prompt_ids=before.token_ids), PrefixRequest(prompt_ids=after.token_ids)], block_size=1
    )
    assert second.nearest is not None
    return second.nearest.shared_tokens


def parting(renderer: ChatRenderer, before: Packet, after: Packet) -> str | None:
    stored, now = rendered(renderer, before), rendered(renderer, after)
    position = shared(stored, now)
    if position == len(stored.token_ids):
        return None
    found = first_break(
        renderer, after.messages, after.tools, sent=now, stored=stored, position=position
    ).words()
    return found.partition(", item")[0].replace("the template's ", "")


def test_every_fault_has_its_line_here() -> None:
    assert BREAKS.keys() == FAULTS.keys()


@pytest.mark.parametrize("name", FAULTS)
def test_calls_part_where_the_fault_says(name: str, renderers: Renderers) -> None:
    renderer = renderers("qwen2_5")
    packets = [sent(call, name, renderer=renderer).packet for call in range(CALLS)]
    assert tuple(parting(renderer, *both) for both in pairwise(packets)) == BREAKS[name]


@pytest.mark.parametrize("template", ["qwen2_5", "qwen3"])
@pytest.mark.parametrize("name", FAULTS)
def test_every_faulty_packet_can_be_sent_and_its_tokens_have_owners(
    name: str, template: str, renderers: Renderers
) -> None:
    renderer = renderers(template)
    for call in (0, 3, CALLS - 1):
        packet = sent(call, name, renderer=renderer).packet
        found = rendered(renderer, packet)
        assert found.coarse is None
        assert found.text.endswith("<|im_start|>assistant\n")
        tokens = found.tokens_by_item()
        assert {item.id: item.tokens for item in packet.manifest.selected} == {
            item.id: tokens.get(item.id, 0) for item in packet.manifest.selected
        }


def test_a_clock_in_the_cached_head_leaves_nothing_to_reuse(renderers: Renderers) -> None:
    renderer = renderers("qwen3")
    for names, reused in (((), True), (("clock-in-system-head",), False)):
        prompts = [
            PrefixRequest(
                prompt_ids=rendered(renderer, sent(call, *names, renderer=renderer).packet).token_ids
            )
            for call in range(3)
        ]
        for prediction in predict(prompts, block_size=64)[1:]:
            assert (prediction.cached_tokens > 0) is reused
            assert prediction.ceiling_tokens > 0


def test_a_clock_at_the_tail_of_the_system_prompt_saves_that_prompt_and_no_tool(renderers: Renderers) -> None:
    renderer = renderers("qwen2_5")
    one, two = (
        rendered(renderer, sent(call, "clock-in-system-tail", renderer=renderer).packet) for call in (2, 3)
    )
    text = two.text[: two.token_offsets[shared(one, two)]]
    assert "one step at a time." in text
    assert "<tools>" not in text


def test_the_stable_transcript_keeps_its_text_and_the_moving_one_loses_all_of_it(
    renderers: Renderers,
) -> None:
    renderer = renderers("qwen2_5")
    kept = {}
    for name in ("text-transcript", "text-transcript-moving-head"):
        one, two = (rendered(renderer, sent(call, name, renderer=renderer).packet) for call in (4, 5))
        end = two.text.index("<|im_start|>user")
        kept[name] = shared(one, two) - len(renderer.tokenizer.encode(two.text[:end]).ids)
        whole = len(one.token_ids)
    assert kept["text-transcript"] > 400
    assert kept["text-transcript-moving-head"] < 20 < whole


def test_qwen3_hides_old_reasoning_at_the_next_question_and_echoed_reasoning_keeps_the_prefix(
    renderers: Renderers,
) -> None:
    renderer = renderers("qwen3")

    def parts(*names: str) -> tuple[str | None, ...]:
        packets = [sent(call, *names, renderer=renderer).packet for call in range(CALLS)]
        return tuple(parting(renderer, *both) for both in pairwise(packets))

    assert parts() == (ON, ON, ON, "message 2 (assistant)", ON, ON)
    assert parts("reasoning-echoed") == (ON,) * 6
    assert parts("reasoning-dropped") == (ON,) * 6


def test_inside_the_running_loop_echoed_reasoning_has_the_bytes_of_the_field(renderers: Renderers) -> None:
    renderer = renderers("qwen3")
    for call in range(1, 4):
        plain, echoed = (
            rendered(renderer, sent(call, *names, renderer=renderer).packet)
            for names in ((), ("reasoning-echoed",))
        )
        assert echoed.text == plain.text
        assert echoed.tokens_by_item() == plain.tokens_by_item()


@pytest.mark.parametrize("name", ["reasoning-dropped", "tool-result-as-user"])
def test_reasoning_that_is_not_sent_back_leaves_the_generated_tokens_behind(
    name: str, renderers: Renderers
) -> None:
    renderer = renderers("qwen3")
    plain = [rendered(renderer, sent(call, renderer=renderer).packet) for call in (0, 1)]
    end = plain[1].token_ids.index(renderer.tokenizer.encode("<|im_end|>").ids[0], len(plain[0].token_ids))
    output = plain[1].token_ids[len(plain[0].token_ids) : end + 1]

    def reused(*names: str) -> int:
        before, after = (
            rendered(renderer, sent(call, *names, renderer=renderer).packet).token_ids for call in (0, 1)
        )
        _, second = predict(
            [PrefixRequest(prompt_ids=before, output_ids=output), PrefixRequest(prompt_ids=after)],
            block_size=1,
        )
        assert second.nearest is not None
        assert second.nearest.relation is (Relation.DIVERGES if names else Relation.EXTENDS)
        return second.nearest.shared_tokens - len(before)

    assert reused() == len(output) - 1  # the last one is sampled and never fed back
    assert reused(name) == 0


def test_a_policy_that_echoes_the_running_loop_alone_is_overruled(renderers: Renderers) -> None:
    policy = ContextPolicy(reasoning=ReasoningEcho.CURRENT_LOOP)
    draft = sent(CALLS - 1, policy=policy).draft
    thoughts = {
        item.id: item.payload.reasoning
        for item in RUN.history(CALLS - 1)
        if getattr(item.payload, "reasoning", None)
    }
    context = FaultContext(CALLS - 1, BEGIN, 0)
    (blind,) = build_faults(["reasoning-echoed"], context)
    (fault,) = build_faults(["reasoning-echoed"], replace(context, reasoning=thoughts))
    assert "Thought 0" not in repr(blind.apply(draft))
    whole = sent(CALLS - 1).draft
    assert fault.apply(draft).plain_messages() == fault.apply(whole).plain_messages()
