"""`ctxlab assemble`, `diff`, `replay` and `policy`, from the command line's own entry point."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from experiments.faults import FAULTS
from serving.assembler import ContextPolicy
from tests.support.command import Done, Run, one_sentence

EXAMPLE = Path(__file__).parents[3] / "examples" / "support_agent.json"


def example() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    return loaded


def written(folder: Path, request: object) -> Path:
    path = folder / "request.json"
    path.write_text(json.dumps(request), encoding="utf-8")
    return path


def test_the_example_shows_layers_tokens_and_what_stayed_out_and_why(ctxlab: Run) -> None:
    done = ctxlab("assemble", EXAMPLE)
    assert done.code == 0
    assert "an estimate" in done.err
    for words in (
        "layers: policy 97",
        "utility 0.95",
        "utility not positive",
        "superseded",
        "missing: status-page",
        "4096 window − 512 output",
    ):
        assert words in done.out
    assert "other-tenant" not in done.out + done.err


def test_json_is_one_document_with_the_whole_packet(ctxlab: Run) -> None:
    done = ctxlab("assemble", EXAMPLE, "--json")
    shown = json.loads(done.out)
    assert shown["outcome"] == "packet"
    assert shown["estimate"] is True
    manifest = shown["packet"]["manifest"]
    assert (
        sum(i["tokens"] for i in manifest["selected"]) + manifest["budget"]["framing"]
        == (manifest["budget"]["used"])
    )
    assert "ignore the policy above" not in shown["packet"]["messages"][0]["content"]


def test_a_request_that_cannot_fit_is_handed_off_with_its_shortfall(ctxlab: Run, tmp_path: Path) -> None:
    request = example() | {"window": 700}
    done = ctxlab("assemble", written(tmp_path, request), "--save", tmp_path / "kept")
    assert done.code == 1
    assert "hand-off: required_exceeds_budget" in done.out
    assert not (tmp_path / "kept" / "packet.json").exists()
    assert ctxlab("replay", tmp_path / "kept").out.startswith("exact")


def test_two_saved_policies_differ_in_layout_and_policy_alone(ctxlab: Run, tmp_path: Path) -> None:
    for name in ("default", "before-task"):
        assert ctxlab("assemble", EXAMPLE, "-p", name, "--save", tmp_path / name).code == 0
    done = ctxlab("diff", tmp_path / "default", tmp_path / "before-task")
    assert done.code == 0
    assert "first byte that differs: messages[1].content byte 0 (turn-000 → runbook-401)" in done.out
    assert "first token that differs" in done.out
    sections = [line for line in done.out.splitlines() if line.endswith(":")]
    assert sections == ["layout:", "policy:"]
    shown = json.loads(ctxlab("diff", tmp_path / "default", tmp_path / "before-task", "--json").out)
    assert shown["equal"] is False
    assert shown["packets_compared"] and shown["tokens_compared"]


def test_faults_are_applied_in_order_shown_with_what_they_break_and_replayed(
    ctxlab: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    done = ctxlab(
        "assemble",
        EXAMPLE,
        "--fault",
        "clock-in-system-head",
        "--fault",
        "late-system-message",
        "--save",
        folder,
    )
    assert done.code == 0
    assert "fault: clock-in-system-head, breaks static head" in done.out
    assert "fault: late-system-message, breaks append only, one system message" in done.out
    packet = json.loads((folder / "packet.json").read_text(encoding="utf-8"))
    assert packet["messages"][0]["content"].startswith("Current time: 2026-10-02 09:30:00.\n")
    assert ctxlab("replay", folder) == Done(0, "exact\n", "")
    (folder / "faults.json").unlink()
    gone = ctxlab("replay", folder)
    assert gone.code == 1
    assert "missing: fault clock-in-system-head" in gone.out


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_has_all_it_needs_from_the_command_line(ctxlab: Run, name: str) -> None:
    done = ctxlab("assemble", EXAMPLE, "--fault", name, "--json")
    (applied,) = json.loads(done.out)["packet"]["manifest"]["faults"]
    assert (done.code, applied["name"]) == (0, name)


def test_a_fault_that_does_not_exist_is_refused_with_those_that_do(ctxlab: Run) -> None:
    done = ctxlab("assemble", EXAMPLE, "--fault", "sunspots")
    assert done.code == 2
    assert "There is no fault 'sunspots'; choose among null, clock-in-system-head" in done.err


def test_equal_sides_have_no_difference_and_exit_code_tells_the_others(ctxlab: Run, tmp_path: Path) -> None:
    ctxlab("assemble", EXAMPLE, "--save", tmp_path / "a")
    ctxlab("assemble", EXAMPLE, "-p", "user-carrier", "--save", tmp_path / "b")
    manifest = tmp_path / "a" / "manifest.json"
    same = ctxlab("diff", manifest, tmp_path / "a", "--exit-code")
    assert same == Done(0, "no difference\n", "")
    assert ctxlab("diff", manifest, tmp_path / "b", "--exit-code").code == 1


def test_a_saved_context_replays_exactly_and_partially_once_a_file_is_gone(
    ctxlab: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    ctxlab("assemble", EXAMPLE, "--save", folder)
    assert ctxlab("replay", folder) == Done(0, "exact\n", "")
    (folder / "renderer.json").unlink()
    done = ctxlab("replay", folder, "--json")
    assert done.code == 1
    shown = json.loads(done.out)
    assert shown["verdict"] == "partial"
    assert shown["missing"] == [{"snapshot": "renderer", "name": "fixed-counter"}]


def test_a_forgotten_memory_makes_the_replay_partial_and_is_named(ctxlab: Run, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    ctxlab("assemble", EXAMPLE, "--save", folder)
    stored = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    stored["candidates"] = [i for i in stored["candidates"] if i["id"] != "memory-environment"]
    (folder / "request.json").write_text(json.dumps(stored), encoding="utf-8")
    done = ctxlab("replay", folder)
    assert done.code == 1
    assert "missing: item memory-environment" in done.out
    assert "- memory-environment (selected)" in done.out


def test_another_policy_makes_the_replay_historical(ctxlab: Run, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    ctxlab("assemble", EXAMPLE, "--save", folder)
    (folder / "policy.json").write_text('{"carrier": "user"}', encoding="utf-8")
    done = ctxlab("replay", folder)
    assert done.code == 1
    assert done.out.startswith("historical\n  policy_changed\n")


def test_a_model_that_is_not_here_counts_as_missing_and_is_not_fetched(
    ctxlab: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CTXLAB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "kept"
    ctxlab("assemble", EXAMPLE, "--save", folder)
    (folder / "renderer.json").write_text('{"kind": "model", "model": "no-such-model"}', encoding="utf-8")
    done = ctxlab("replay", folder)
    assert done.code == 1
    assert "missing: renderer" in done.out
    assert "no-such-model is not on this disk" in done.err


def test_a_models_own_template_and_tokenizer_count_and_replay(ctxlab: Run, tmp_path: Path) -> None:
    model, folder = tmp_path / "model", tmp_path / "kept"
    model.mkdir()
    alphabet = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(model / "tokenizer.json"))
    (model / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    template = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
    (model / "chat_template.jinja").write_text(template, encoding="utf-8")
    done = ctxlab("assemble", EXAMPLE, "--model", model, "--save", folder, "--json")
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    sent = "".join(f"<{m['role']}>{m['content']}" for m in shown["packet"]["messages"])
    assert shown["estimate"] is False
    assert shown["packet"]["manifest"]["budget"]["used"] == len(sent.encode())  # one token a byte
    assert ctxlab("replay", folder).out == "exact\n"
    estimate = json.loads(ctxlab("assemble", EXAMPLE, "--json").out)
    assert estimate["manifest_id"] != shown["manifest_id"]


def test_a_folder_in_use_is_not_written_into(ctxlab: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x", encoding="utf-8")
    done = ctxlab("assemble", EXAMPLE, "--save", tmp_path)
    assert done.code == 2
    assert "new or empty folder" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_policies_are_listed_with_what_they_change(ctxlab: Run) -> None:
    done = ctxlab("policy", "list")
    assert "suffix_position = before_task" in done.out
    shown = json.loads(ctxlab("policy", "list", "--json").out)
    assert shown[0] == {"name": "default", "changes": {}, "sha256": ContextPolicy().digest()}
    assert all(policy["changes"] for policy in shown[1:])


def test_a_shown_policy_is_toml_that_means_the_same(ctxlab: Run, tmp_path: Path) -> None:
    for name in (
        "default",
        "before-task",
        "knapsack",
        "masking",
        "status-bar",
        "status-bar-append",
        "checkpoint",
    ):
        text = ctxlab("policy", "show", name).out
        path = tmp_path / f"{name}.toml"
        path.write_text(text, encoding="utf-8")
        again = json.loads(ctxlab("policy", "show", path, "--json").out)
        assert again == json.loads(ctxlab("policy", "show", name, "--json").out)
        assert ContextPolicy.model_validate(tomllib.loads(text)).name == name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["assemble", "no-such-file.json"], "no-such-file.json"),
        (["assemble", "."], "cannot be read"),
        (["assemble", EXAMPLE, "--policy", "no-such-policy"], "before-task"),
        (["diff", ".", "."], "holds no manifest.json"),
        (["diff", EXAMPLE, EXAMPLE], "expected a ContextManifest"),
        (["replay", EXAMPLE], "is none"),
        (["replay", "no-such-folder"], "no-such-folder"),
        (["policy", "show", "no-such-policy"], "no-such-policy"),
    ],
)
def test_what_is_not_there_is_named(
    ctxlab: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[object], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    one_sentence(ctxlab(*arguments), words)


def test_a_torn_file_of_a_saved_folder_is_named(ctxlab: Run, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    ctxlab("assemble", EXAMPLE, "--save", folder)
    (folder / "packet.json").write_text("{", encoding="utf-8")
    one_sentence(ctxlab("replay", folder), "packet.json is not JSON")


def test_an_edited_packet_is_not_taken_for_the_one_that_was_sent(ctxlab: Run, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    ctxlab("assemble", EXAMPLE, "--save", folder)
    path = folder / "packet.json"
    path.write_text(
        path.read_text(encoding="utf-8").replace("five sentences", "six sentences"), encoding="utf-8"
    )
    one_sentence(ctxlab("replay", folder), "their hashes differ")
    one_sentence(ctxlab("diff", folder, folder), "their hashes differ")


@pytest.mark.parametrize(
    "command",
    [
        ["ablate"],
        ["incident"],
        ["incident", "build"],
        ["incident", "check"],
        ["assemble"],
        ["diff"],
        ["replay"],
        ["policy"],
        ["policy", "list"],
        ["policy", "show"],
    ],
)
def test_every_command_explains_itself_with_an_example(ctxlab: Run, command: list[str]) -> None:
    done = ctxlab(*command, "--help")
    assert done.code == 0
    assert f"ctxlab {command[0]} " in done.out.split("Usage:", 1)[1].split("\n", 1)[1]


def test_the_help_of_assemble_imports_no_heavy_library() -> None:
    program = (
        "import sys\nsys.argv = ['ctxlab', 'assemble', '--help']\n"
        "from experiments.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'vllm', 'numpy', 'tokenizers', 'serving.assembler'} & set(sys.modules)\n"
        "sys.exit(f'imported: {sorted(heavy)}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
