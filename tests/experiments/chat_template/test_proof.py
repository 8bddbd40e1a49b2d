from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from experiments.chat_template.proof import Sent, kept, prove_run
from serving.chat.survey import Kept
from serving.prefix import PrefixRequest, predict

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple)


def test_a_request_that_goes_on_behind_the_answer_keeps_all_but_the_id_that_no_engine_stores() -> None:
    before = Sent((1, 2, 3), (4, 5, 9), 0)
    assert kept(before, Sent((1, 2, 3, 4, 5, 7), (), 0)) is Kept.ALL
    assert kept(before, Sent((1, 2, 3, 4, 6), (), 0)) is Kept.PROMPT
    assert kept(before, Sent((1, 2, 9), (), 0)) is Kept.PART


def test_lost_tokens_are_counted_in_whole_blocks_of_what_the_twin_would_reuse() -> None:
    first = Sent(tuple(range(10)), (), 0)
    broken = Sent((*range(5), *range(50, 57)), (), 4)
    proof = prove_run([first, broken], block_size=4)
    assert (proof.twin_tokens, proof.cached_tokens, proof.lost_tokens) == (8, 4, 4)
    assert (proof.kept_all, proof.kept_prompt) == (0, 0)


@given(steps=st.lists(st.tuples(IDS, IDS), min_size=1, max_size=5), block_size=st.integers(1, 6))
def test_a_run_that_only_appends_loses_nothing(
    steps: list[tuple[tuple[int, ...], tuple[int, ...]]], block_size: int
) -> None:
    prompts = list(accumulate((new for new, _ in steps)))
    answers = [answer for _, answer in steps]
    # What was generated comes back in front of what is new.
    for place in range(1, len(prompts)):
        prompts[place] = prompts[place - 1] + answers[place - 1] + steps[place][0]
    sent = as_predicted(prompts, answers, block_size)
    proof = prove_run(sent, block_size)
    assert proof.lost_tokens == 0
    assert proof.kept_all == len(steps) - 1


@given(
    prompts=st.lists(IDS, min_size=1, max_size=6),
    answer=IDS,
    block_size=st.integers(1, 6),
)
def test_no_run_loses_less_than_nothing(
    prompts: list[tuple[int, ...]], answer: tuple[int, ...], block_size: int
) -> None:
    proof = prove_run(as_predicted(prompts, [answer] * len(prompts), block_size), block_size)
    assert 0 <= proof.lost_tokens <= proof.twin_tokens
    assert proof.kept_all + proof.kept_prompt <= proof.calls - 1


def as_predicted(
    prompts: list[tuple[int, ...]], answers: list[tuple[int, ...]], block_size: int
) -> list[Sent]:
    requests = [
        PrefixRequest(prompt_ids=prompt, output_ids=answer)
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    found = predict(requests, block_size=block_size)
    return [
        Sent(prompt, answer, one.cached_tokens)
        for prompt, answer, one in zip(prompts, answers, found, strict=True)
    ]
