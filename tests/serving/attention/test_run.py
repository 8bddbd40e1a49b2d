"""From a model folder to a capture, and what is refused on the way."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from serving.attention import (
    AttentionModel,
    CaptureOptions,
    RowMode,
    Statistic,
    Unsupported,
    UnsupportedAttentionError,
    capture,
    plain_segments,
)
from serving.attention import run as run_module
from serving.attention.model import load
from serving.errors import LabError, UsageError
from serving.models import ModelFolder, ModelSource, Weights
from serving.models.catalogue import ShapeRecipe
from serving.models.qwen3 import shape_config
from serving.progress import Silent
from tests.support.attention import eager_matrices, parts, small_model
from tests.support.tiny_model import write_tiny_folder

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 768,
    "max_position_embeddings": 256,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return made(tmp_path_factory.mktemp("nano"))


def made(path: Path, **changes: object) -> ModelFolder:
    """A Qwen3 shape without weights."""
    write_tiny_folder(path, "qwen3")
    config = {**_shape(), **SIZES, "eos_token_id": 1, "bos_token_id": 0, **changes}
    (path / "config.json").write_text(json.dumps(config))
    return ModelFolder(
        name="nano",
        path=path,
        source=ModelSource.SHAPE,
        origin="made here",
        revision=None,
        license=None,
        weights=Weights.DUMMY,
        weights_sha256=None,
        architecture="Qwen3ForCausalLM",
        tool_parser=None,
        reasoning_parser=None,
        max_position_embeddings=256,
        size_bytes=1,
    )


def _shape() -> dict[str, object]:
    names = set(ShapeRecipe.model_fields) & set(SIZES)
    return shape_config(
        ShapeRecipe.model_construct(**{n: SIZES[n] for n in names}, rms_norm_eps=1e-6, rope_theta=1e4)
    )


class Heard(Silent):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.stages: list[str] = []
        self.done = 0.0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def begin(self, stage: str, *, total: float | None = None, unit: str = "") -> None:
        self.stages.append(stage)
        self.total = total

    def advance(self, amount: float) -> None:
        self.done += amount


IDS = [i * 7 % 700 for i in range(120)]


def test_a_capture_holds_what_eager_attention_shows(folder: ModelFolder) -> None:
    segments = parts([i // 25 for i in range(120)])
    found = capture(folder, IDS, segments, CaptureOptions(rows=RowMode.EVERY))
    matrices = eager_matrices(load(folder).model, IDS)
    hot = np.eye(len(segments.segments))[segments.by_token]
    assert np.abs(found.mass - matrices @ hot).max() <= 1e-4
    assert found.model.random_seed == 0
    assert found.model.weights_sha256 is None
    assert found.token_ids == tuple(IDS)
    assert found.pieces is not None
    assert len(found.pieces) == 120
    assert found.entropy is not None


def test_chunks_and_one_pass_agree_and_a_model_is_loaded_once(folder: ModelFolder) -> None:
    model = AttentionModel(folder)
    segments = plain_segments(120)
    first = model.capture(IDS, segments, CaptureOptions())
    loaded = model._loaded
    second = model.capture(IDS, segments, CaptureOptions(chunk=32))
    assert model._loaded is loaded
    assert np.abs(first.mass - second.mass).max() <= 1e-4
    assert first.heatmap is not None
    assert second.heatmap is not None
    assert np.abs(first.heatmap - second.heatmap).max() <= 1e-4


def test_progress_tells_the_estimate_before_and_every_row_of_every_layer(folder: ModelFolder) -> None:
    heard = Heard()
    capture(folder, IDS, plain_segments(120), None, heard)
    assert "TFLOP" in heard.notes[0]
    assert heard.stages == ["load nano", "read the tokens"]
    assert heard.done == heard.total == 3 * 120


def test_random_weights_are_the_same_in_every_capture_and_leave_other_randomness_alone(
    folder: ModelFolder,
) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two = (capture(folder, IDS, plain_segments(120)) for _ in range(2))
    assert np.array_equal(one.mass, two.mass)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("ids", "tokens", "said"),
    [
        (IDS, 119, "segments over the 120 tokens"),
        (IDS * 3, 360, "at most the 256 tokens"),
        ([*IDS[:-1], 768], 120, "below 768, got 768"),
        ([-1, *IDS[1:]], 120, "below 768, got -1"),
    ],
)
def test_tokens_that_the_model_cannot_read_are_refused(
    folder: ModelFolder, ids: list[int], tokens: int, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        capture(folder, ids, plain_segments(tokens))


@pytest.mark.parametrize(
    "options",
    [
        {"layers": (3,)},
        {"heads": (0, 4)},
        {"full_rows": (120,)},
        {"keep_rows": (120,)},
        {"rows": RowMode.CHOSEN, "chosen": (5,), "full_rows": (6,)},
    ],
)
def test_places_that_do_not_exist_are_refused(folder: ModelFolder, options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        capture(folder, IDS, plain_segments(120), CaptureOptions(**options))


@pytest.mark.parametrize(
    "options",
    [
        {"chosen": (1,)},
        {"rows": RowMode.CHOSEN},
        {"layers": ()},
        {"heads": (1, 1)},
        {"full_rows": (3, 2)},
        {"layers": (-1,)},
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        CaptureOptions(**options)


def test_a_model_is_refused_by_its_configuration_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windowed = made(tmp_path, use_sliding_window=True, sliding_window=64, max_window_layers=0)
    monkeypatch.setattr(AttentionModel, "_load", lambda *_: pytest.fail("loaded"))
    with pytest.raises(UnsupportedAttentionError) as caught:
        capture(windowed, IDS, plain_segments(120))
    assert caught.value.reason is Unsupported.SLIDING_WINDOW


def test_a_folder_that_is_no_decoder_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UsageError, match="Expected a decoder"):
        AttentionModel(folder)


def test_a_capture_beyond_the_machine_is_refused_before_it_is_loaded_with_what_would_fit(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "free_bytes", lambda: 480 << 20)
    monkeypatch.setattr(AttentionModel, "_load", lambda *_: pytest.fail("loaded"))
    options = CaptureOptions(
        rows=RowMode.EVERY, statistics=frozenset(Statistic), shuffles=64, full_rows=tuple(range(120))
    )
    with pytest.raises(LabError, match=r"needs .* GiB .* are free. What would fit: .*of the 3 layers"):
        capture(folder, IDS, parts(list(range(120))), options)


def test_weights_from_a_file_are_used_and_named(tmp_path: Path, folder: ModelFolder) -> None:
    model = small_model("qwen3", **{**SIZES, "num_hidden_layers": 1})
    model.save_pretrained(tmp_path)
    stored = folder.model_copy(
        update={"path": tmp_path, "weights": Weights.REAL, "weights_sha256": "ab", "name": "stored"}
    )
    found = capture(stored, IDS, plain_segments(120), CaptureOptions(rows=RowMode.EVERY))
    assert np.abs(found.sink - eager_matrices(model, IDS)[..., 0]).max() <= 1e-4
    assert found.model.weights_sha256 == "ab"
    assert found.model.random_seed is None
    assert found.pieces is None
