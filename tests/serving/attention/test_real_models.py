"""Real weights on real text, all layers and heads. `CTXLAB_WHEELS` saves the network.

`CTXLAB_TEST_CACHE` keeps the models.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from serving.attention import AttentionModel, CaptureOptions, RowMode, plain_segments
from serving.attention.hook import recording
from serving.attention.model import LoadedModel, head_shape, load
from serving.attention.plan import Plan, make_plan
from serving.attention.recorder import Recorder
from serving.chat import ChatTokenizer
from serving.models import ModelFolder, ensure
from tests.support.attention import assert_equal, eager_matrices, parts

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[3]
MODELS = {"smollm2-135m": 1024, "qwen2.5-coder-0.5b": 512, "qwen3-nano-shape": 1024}
"""Name → tokens."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    kept = os.environ.get("CTXLAB_TEST_CACHE")
    return kept or str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Real models use all cores: what is compared must hold there too."""


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, cache: str) -> ModelFolder:
    return ensure(request.param, cache=Path(cache))


@pytest.fixture(scope="module")
def loaded(folder: ModelFolder) -> LoadedModel:
    return load(folder)


@pytest.fixture(scope="module")
def ids(folder: ModelFolder) -> list[int]:
    text = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    return list(ChatTokenizer(folder.path).encode(text).ids[: MODELS[folder.name]])


def plan_for(loaded: LoadedModel, tokens: int) -> Plan:
    options = CaptureOptions(rows=RowMode.EVERY, full_rows=(0, tokens // 2, tokens - 1), shuffles=1)
    return make_plan(head_shape(loaded.model), parts([i // 37 % 24 for i in range(tokens)]), options)


def test_every_statistic_of_a_real_text_is_that_of_eager(loaded: LoadedModel, ids: list[int]) -> None:
    plan = plan_for(loaded, len(ids))
    arrays = loaded.run(plan, ids, None)
    matrices = eager_matrices(loaded.model, ids)
    assert_equal(plan, arrays, matrices)
    assert np.abs(arrays["mass"].sum(-1) - 1).max() <= 1e-4


def test_logits_are_those_of_plain_sdpa_in_one_pass_in_chunks_and_token_by_token(
    loaded: LoadedModel, ids: list[int]
) -> None:
    short = torch.tensor([ids[:160]])

    def pieces(sizes: list[int]) -> list[torch.Tensor]:
        cache, at, logits = DynamicCache(config=loaded.model.config), 0, []
        for size in sizes:
            logits.append(loaded.model(short[:, at : at + size], past_key_values=cache).logits)
            at += size
        return logits

    ways = {"one pass": [160], "chunks": [64, 64, 32], "generation": [144, *[1] * 16]}
    captures = {}
    for way, sizes in ways.items():
        recorder = Recorder(plan_for(loaded, 160))
        with torch.inference_mode():
            plain = pieces(sizes)
            with recording(loaded.model, recorder):
                watched = pieces(sizes)
        assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True)), way
        captures[way] = recorder.finish()
    for way in ("chunks", "generation"):
        for name in ("mass", "sink", "entropy", "peak"):
            assert np.abs(captures[way][name] - captures["one pass"][name]).max() <= 1e-4, (way, name)


def test_greedy_generation_is_the_same_while_watched(loaded: LoadedModel, ids: list[int]) -> None:
    prompt = torch.tensor([ids[:60]])

    def generate() -> torch.Tensor:
        mask = torch.ones_like(prompt)
        return loaded.model.generate(
            prompt, attention_mask=mask, do_sample=False, min_new_tokens=13, max_new_tokens=13
        )

    recorder = Recorder(plan_for(loaded, 72))
    plain = generate()
    with recording(loaded.model, recorder):
        assert torch.equal(generate(), plain)
    recorder.finish()


_MEASURED = """
import json, sys, time
from pathlib import Path
import torch
from serving.attention import AttentionModel, CaptureOptions, RowMode, plain_segments
from serving.models import ensure
folder = ensure(sys.argv[1], cache=Path(sys.argv[2]))
tokens, rows = int(sys.argv[3]), RowMode(sys.argv[4])
model = AttentionModel(folder)
segments = plain_segments(tokens)
options = CaptureOptions(rows=rows)
estimate = model.estimate(segments, options)
loaded = model._load(__import__("serving.progress").progress.Silent())
start = time.process_time()
loaded.run(model._plan(segments, options), [i % 1000 for i in range(tokens)], None)
spent = time.process_time() - start
status = Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
print(json.dumps([estimate.memory.total / peak, estimate.cpu_seconds / spent]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize(
    ("name", "tokens", "rows"),
    [("smollm2-135m", 1024, "every"), ("smollm2-135m", 512, "pooled"), ("qwen3-nano-shape", 4096, "every")],
)
def test_the_estimate_is_within_a_third_in_memory_and_twice_in_processor_time(
    name: str, tokens: int, rows: str, cache: str
) -> None:
    """In a process of its own, on one thread: waiting for other threads counts as processor time."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _MEASURED, name, cache, str(tokens), rows]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    memory, seconds = json.loads(done.stdout.splitlines()[-1])
    assert 0.7 <= memory <= 1.3
    assert 0.5 <= seconds <= 2.0


def test_a_capture_of_a_real_model_names_it(folder: ModelFolder, ids: list[int]) -> None:
    if folder.name == "qwen2.5-coder-0.5b":
        pytest.skip("the same with two more gigabytes")
    found = AttentionModel(folder).capture(ids[:64], plain_segments(64))
    assert found.model.name == folder.name
    assert (found.model.weights_sha256 is None) == (found.model.random_seed is not None)
