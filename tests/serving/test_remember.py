from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from serving.assembler import AssistantTurn, ContextPolicy, RequestContext, Trajectory, UserTurn
from serving.call import Caller, DecodeOptions, MeasuredCall
from serving.client import Surface
from serving.errors import UsageError
from serving.models import ModelFolder
from tests.support.caching_client import CachingClient
from tests.support.tiny_model import write_tiny_folder

BLOCK = 4
STORY = Trajectory(
    system="You are brief.",
    turns=(
        UserTurn(text="What is the plural of house?"),
        AssistantTurn(text="It is houses, with an s at the end."),
        UserTurn(text="And of mouse?"),
    ),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_folder(tmp_path, "qwen2_5")


def caller(folder: Path, surface: Surface = Surface.CHAT, template: str | None = None) -> Caller:
    model = ModelFolder.model_construct(name="tiny", path=folder)
    client = CachingClient(folder, BLOCK)
    return Caller(client, model, block_size=BLOCK, surface=surface, template=template)  # type: ignore[arg-type]


def asked(caller: Caller, number: int) -> MeasuredCall:
    context = RequestContext(tenant="t", actor="a", now=datetime(2026, 1, 1, tzinfo=UTC))
    request = STORY.request(number, context=context, window=4_000, max_output=1)
    call = caller.call(request, ContextPolicy(), DecodeOptions(max_tokens=1), salt="s")
    assert isinstance(call, MeasuredCall)
    return call


@pytest.mark.parametrize("surface", Surface)
def test_an_answer_that_was_left_in_the_cache_is_reused_up_to_the_id_that_no_engine_stores(
    surface: Surface, folder: Path
) -> None:
    served = caller(folder, surface)
    first = asked(served, 0)
    answer = served.renderer.tokenizer.encode("It is houses, with an s at the end.<|im_end|>").ids
    left = served.remember(first, answer, salt="s")
    assert left.ids_agree and left.prediction_agrees
    assert left.rendered.token_ids == first.rendered.token_ids + answer[:-1]
    second = asked(served, 1)
    stored = len(first.rendered.token_ids) + len(answer) - 1
    assert second.cached_tokens == stored // BLOCK * BLOCK > len(first.rendered.token_ids)
    assert second.first_break is None


def test_another_answer_than_the_one_that_is_sent_back_is_named_as_a_difference(folder: Path) -> None:
    served = caller(folder)
    first = asked(served, 0)
    served.remember(
        first, served.renderer.tokenizer.encode("Houses, I should think.<|im_end|>").ids, salt="s"
    )
    second = asked(served, 1)
    assert second.prediction_agrees
    assert second.first_break is not None
    assert second.first_break.position == len(first.rendered.token_ids)


def test_a_single_id_leaves_nothing_and_is_refused(folder: Path) -> None:
    served = caller(folder)
    with pytest.raises(UsageError, match="at least 2"):
        served.remember(asked(served, 0), (1,), salt="s")


def test_another_template_needs_the_surface_that_takes_ids(folder: Path) -> None:
    source = "{% for message in messages %}[{{ message.role }}] {{ message.content }} {% endfor %}"
    with pytest.raises(UsageError, match="token-in"):
        caller(folder, template=source)
    call = asked(caller(folder, Surface.TOKEN_IN, source), 0)
    assert call.rendered.text.startswith("[system] You are brief. [user] What")
    assert call.ids_agree
