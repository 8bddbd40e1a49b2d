from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engine.backends.cpu import CpuBackend
from serving.engine.config import BackendName, Dtype, EngineConfig
from serving.engine.preflight import check_port, memory_need, preflight
from serving.engine.shape import ModelShape, read_shape
from serving.errors import LabError, UsageError
from tests.serving.engine.fake_stage import free_port
from tests.serving.engine.machines import CUDA, DUMMY, GIB, MODEL, PLAIN_CPU, write_config


def config_for(folder: Path, **changes: object) -> EngineConfig:
    model = DUMMY.model_copy(update={"path": folder})
    config = EngineConfig(model=model, backend=BackendName.CPU, port=free_port(), max_model_len=2048)
    return config.model_copy(update=changes)


def test_a_sound_configuration_passes(tmp_path: Path) -> None:
    preflight(config_for(write_config(tmp_path)), PLAIN_CPU)


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds a config\.json"):
        preflight(config_for(tmp_path), PLAIN_CPU)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = write_config(tmp_path)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match=r"holds no tokenizer \(tokenizer\.json"):
        preflight(config_for(folder), PLAIN_CPU)


def test_real_weights_must_be_there_and_dummy_ones_need_not(tmp_path: Path) -> None:
    folder = write_config(tmp_path)
    config = config_for(folder, model=MODEL.model_copy(update={"path": folder}))
    with pytest.raises(UsageError, match="holds no weight files"):
        preflight(config, PLAIN_CPU)
    (folder / "model.safetensors").touch()
    preflight(config, PLAIN_CPU)


def test_a_cache_below_one_request_is_refused_with_the_length_that_fits(tmp_path: Path) -> None:
    config = config_for(write_config(tmp_path), max_model_len=40960, kv_cache_bytes=GIB)
    # 28 layers × 8 heads × 128 × 2 (keys, values) × 4 bytes = 229376 bytes a token
    with pytest.raises(UsageError, match=r"needs 8\.75 GiB .* set max_model_len to 4681 or less"):
        preflight(config, PLAIN_CPU)
    preflight(config.model_copy(update={"max_model_len": 4681}), PLAIN_CPU)
    preflight(config.model_copy(update={"max_model_len": None}), PLAIN_CPU)


@pytest.mark.parametrize(("asked", "size"), [(256, 1 << 30), (8192, 2 * 8192 * 229_376), (None, 2 << 30)])
def test_the_cache_that_nobody_sized_holds_two_of_the_longest_requests(
    tmp_path: Path, asked: int | None, size: int
) -> None:
    """A study asks for a length, and any model of the catalogue has to start with it."""
    config = config_for(write_config(tmp_path), max_model_len=asked)
    preflight(config, PLAIN_CPU)
    flags = CpuBackend().plan(config, PLAIN_CPU).flags
    assert flags[flags.index("--kv-cache-memory-bytes") + 1] == str(size)


def test_too_little_memory_is_refused_with_the_numbers(tmp_path: Path) -> None:
    small = PLAIN_CPU.model_copy(update={"memory_available": 4 * GIB})
    with pytest.raises(LabError, match=r"\(weights 2\.2, KV cache 1\.0, engine 2\.1\) and 4\.0 GiB"):
        preflight(config_for(write_config(tmp_path)), small)


def test_on_a_gpu_the_memory_of_the_device_counts(tmp_path: Path) -> None:
    config = config_for(write_config(tmp_path), backend=BackendName.CUDA, kv_cache_bytes=150 * GIB)
    with pytest.raises(LabError, match=r"139\.0 GiB on the device"):
        preflight(config, CUDA)


def test_a_taken_port_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(LabError, match=f"Port {port} on 127.0.0.1 cannot be used .* choose another port"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


@pytest.mark.parametrize("host", ["nosuch.invalid", "a..b"])
def test_a_host_that_is_no_address_is_named(host: str) -> None:
    with pytest.raises(LabError, match=f"on {host} cannot be used"):
        check_port(host, 8000)


def test_a_configuration_of_another_form_is_left_to_the_engine(tmp_path: Path) -> None:
    folder = write_config(tmp_path, hidden_size=None)
    assert read_shape(folder) is None
    preflight(config_for(folder), PLAIN_CPU)


@pytest.mark.parametrize(
    "odd",
    [
        {"num_attention_heads": 0},
        {"num_key_value_heads": 0},
        {"intermediate_size": "x"},
        {"hidden_size": -1},
        {"vocab_size": [1]},
        {"tie_word_embeddings": "perhaps"},
    ],
    ids=str,
)
def test_odd_sizes_are_left_to_the_engine(tmp_path: Path, odd: dict[str, object]) -> None:
    folder = write_config(tmp_path, **odd)
    assert read_shape(folder) is None
    preflight(config_for(folder), PLAIN_CPU)


@pytest.mark.parametrize("text", ["", "[1]", "{", "null", "\udcff", "[" * 100_000])
def test_a_configuration_that_is_no_object_has_no_shape(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert read_shape(tmp_path) is None


def test_absent_sizes_take_the_meaning_they_have_in_transformers(tmp_path: Path) -> None:
    shape = read_shape(write_config(tmp_path, num_key_value_heads=None, head_dim=None, torch_dtype=None))
    assert shape is not None
    assert (shape.num_key_value_heads, shape.head_dim, shape.stored_dtype) == (16, 64, Dtype.FLOAT32)


def test_the_parameters_of_qwen3_are_counted(tmp_path: Path) -> None:
    shape = read_shape(write_config(tmp_path))
    assert shape is not None
    assert shape.parameters == pytest.approx(596_049_920, rel=1e-3)  # the published count


@given(st.sampled_from([Dtype.FLOAT32, Dtype.BFLOAT16, Dtype.FLOAT16]))
def test_weights_widen_with_the_format(dtype: Dtype) -> None:
    shape = ModelShape(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        vocab_size=512,
        tie_word_embeddings=True,
        stored_dtype=Dtype.BFLOAT16,
    )
    need = memory_need(EngineConfig(model=MODEL, backend=BackendName.CPU), shape, dtype)
    assert need.weights == MODEL.size_bytes * (2 if dtype is Dtype.FLOAT32 else 1)
    assert need.total == need.weights + need.kv_cache + need.overhead
