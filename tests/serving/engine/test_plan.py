"""Golden commands: `UPDATE_GOLDEN=1 python -m pytest tests/serving/engine/test_plan.py` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from serving.engine.config import BackendName, Dtype, EngineCommand, EngineConfig
from serving.engine.kv_events import KVEventsEndpoint
from serving.engine.machine import Machine
from serving.engine.plan import API_KEY_VARIABLE, plan_command
from serving.errors import UsageError
from tests.serving.engine.machines import CUDA, DUMMY, MAC, MODEL, PLAIN, PLAIN_CPU, WIDE_CPU

GOLDEN = Path(__file__).parent / "golden"
GIB = 1 << 30

CASES: dict[str, tuple[EngineConfig, Machine]] = {
    "cpu-default": (EngineConfig(model=MODEL, backend=BackendName.CPU), PLAIN_CPU),
    "cpu-wide-vectors": (EngineConfig(model=PLAIN, backend=BackendName.CPU), WIDE_CPU),
    "cpu-everything-asked": (
        EngineConfig(
            model=DUMMY,
            backend=BackendName.CPU,
            host="0.0.0.0",
            port=8123,
            block_size=64,
            kv_cache_bytes=GIB,
            max_model_len=4096,
            max_num_batched_tokens=1024,
            dtype=Dtype.BFLOAT16,
            api_key=SecretStr("sk-very-secret"),
            kv_events=KVEventsEndpoint(
                live="ipc:///run/user/1000/8123.events", replay="ipc:///run/user/1000/8123.replay"
            ),
            seed=7,
            extra_flags=("--max-num-seqs", "4"),
        ),
        PLAIN_CPU,
    ),
    "cuda-default": (EngineConfig(model=MODEL, backend=BackendName.CUDA), CUDA),
    "cuda-sized": (
        EngineConfig(
            model=MODEL, backend=BackendName.CUDA, block_size=16, kv_cache_bytes=8 * GIB, max_model_len=32768
        ),
        CUDA,
    ),
    "cuda-events": (
        EngineConfig(
            model=MODEL, backend=BackendName.CUDA, kv_events=KVEventsEndpoint(live="tcp://127.0.0.1:5557")
        ),
        CUDA,
    ),
    "metal-default": (EngineConfig(model=MODEL, backend=BackendName.METAL), MAC),
    "metal-sized": (EngineConfig(model=MODEL, backend=BackendName.METAL, kv_cache_bytes=2 * GIB), MAC),
}


def printed(command: EngineCommand) -> str:
    return "".join(f"# {note}\n" for note in command.notes) + command.printable() + "\n"


@pytest.mark.parametrize("name", CASES)
def test_the_command_is_the_golden_one(name: str) -> None:
    text = printed(plan_command(*CASES[name]))
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def test_there_is_no_golden_file_without_a_case() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(CASES)


@pytest.mark.parametrize(
    "address", ["tcp://*:5557", "tcp://0.0.0.0:5557", "tcp://[::]:5557", "tcp://10.0.0.1:5557"]
)
def test_events_that_other_machines_could_read_are_refused(address: str) -> None:
    for endpoint in (
        KVEventsEndpoint(live=address),
        KVEventsEndpoint(live="ipc:///x.events", replay=address),
    ):
        with pytest.raises(UsageError, match="every prompt"):
            plan_command(
                EngineConfig(model=MODEL, backend=BackendName.CUDA, kv_events=endpoint),
                CUDA,
            )


def test_a_key_is_in_the_environment_and_nowhere_to_be_seen() -> None:
    command = plan_command(*CASES["cpu-everything-asked"])
    assert command.full_env({})[API_KEY_VARIABLE] == "sk-very-secret"
    seen = (command.printable(), repr(command), command.model_dump_json(), " ".join(command.argv))
    assert not any("sk-very-secret" in text for text in seen)
    assert f"{API_KEY_VARIABLE}='****'" in command.printable()


@pytest.mark.parametrize(
    "flag",
    [
        "--api-key",
        "--api-key=sk-x",
        "--api_key=sk-x",
        "--API-KEY=sk-x",
        "--api-k=sk-x",
        "--hf-token",
        "--hf_t",
    ],
)
def test_a_secret_on_the_command_line_is_refused_in_every_spelling(flag: str) -> None:
    config = EngineConfig(model=MODEL, backend=BackendName.CPU, extra_flags=(flag,))
    with pytest.raises(UsageError, match="secret on the command line") as caught:
        plan_command(config, PLAIN_CPU)
    assert "sk-x" not in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "owned"),
    [
        ("--host=0.0.0.0", "--host"),
        ("--host", "--host"),
        ("--ho=0.0.0.0", "--host"),
        ("--port=1", "--port"),
        ("--model=/other", "--model"),
        ("--model.x=1", "--model"),
        ("--served_model_name=x", "--served-model-name"),
        ("--served-model=x", "--served-model-name"),
        ("--config=flags.yaml", "--config"),
    ],
)
def test_what_the_plan_decides_cannot_be_overruled_by_a_flag(flag: str, owned: str) -> None:
    config = EngineConfig(model=MODEL, backend=BackendName.CPU, extra_flags=("--max-num-seqs", "4", flag))
    with pytest.raises(UsageError, match=f"{owned} "):
        plan_command(config, PLAIN_CPU)


@pytest.mark.parametrize(
    "flag",
    ["--model-impl=vllm", "--hf-overrides={}", "--api-server-count=1", "--max_num_seqs=4", "-O0", "host"],
)
def test_other_flags_reach_the_engine_as_they_are(flag: str) -> None:
    config = EngineConfig(model=MODEL, backend=BackendName.CPU, extra_flags=(flag,))
    assert plan_command(config, PLAIN_CPU).argv[-1] == flag


def test_another_host_needs_a_key() -> None:
    config = EngineConfig(model=MODEL, backend=BackendName.CPU, host="0.0.0.0")
    with pytest.raises(UsageError, match="reachable from other machines and no API key"):
        plan_command(config, PLAIN_CPU)
    keyed = config.model_copy(update={"api_key": SecretStr("k")})
    assert plan_command(keyed, PLAIN_CPU).base_url == "http://127.0.0.1:8000"


@given(st.integers(min_value=1, max_value=512))
def test_the_cpu_refuses_exactly_the_block_sizes_that_its_attention_cannot_take(block_size: int) -> None:
    config = EngineConfig(model=MODEL, backend=BackendName.CPU, block_size=block_size)
    if block_size % 32 == 0:
        assert str(block_size) in plan_command(config, PLAIN_CPU).argv
    else:
        with pytest.raises(UsageError, match=f"multiples of 32, and {block_size} was asked for"):
            plan_command(config, PLAIN_CPU)


def test_a_gpu_may_have_blocks_of_16() -> None:
    config = EngineConfig(model=MODEL, backend=BackendName.CUDA, block_size=16)
    assert "16" in plan_command(config, CUDA).argv


@given(st.integers(min_value=1, max_value=40960))
def test_on_cpu_one_prefill_step_holds_the_longest_prompt(max_model_len: int) -> None:
    config = EngineConfig(model=MODEL, backend=BackendName.CPU, max_model_len=max_model_len)
    argv = plan_command(config, PLAIN_CPU).argv
    assert int(argv[argv.index("--max-num-batched-tokens") + 1]) >= max_model_len


def test_a_shorter_prefill_step_is_allowed_with_a_warning() -> None:
    command = plan_command(*CASES["cpu-everything-asked"])
    assert any("seed and temperature above 0" in note for note in command.notes)
