"""Compare greedy output of a vLLM server with transformers: `python greedy_agreement.py MODEL_FOLDER`.

Every prompt is completed by the server at temperature 0. transformers then scores prompt and output in one
pass, so each position is judged after the same tokens. Where its best token is not the server's, its gap
between the two best logits must be below NEAR_TIE, and the rest of that output is not compared: after it the
two read different text. Both run in float32; NEAR_TIE is what sums in another order may move a logit.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

NEAR_TIE = 0.01
TOKENS = 48
START_SECONDS = 600
QUESTIONS = (
    "Write a Python function that reverses a string.",
    "What is the capital of France?",
    "Explain what a hash table is in two sentences.",
    "Write a SQL query that counts rows per day.",
    "What does `git rebase` do?",
    "Name three sorting algorithms.",
    "Translate 'good morning' to German.",
    "Write a bash loop over all .txt files.",
    "What is 17 times 23?",
    "Write a haiku about the sea.",
    "What is the difference between a list and a tuple?",
    "Write a regular expression for an ISO date.",
    "为什么天空是蓝色的？",
    "Qu'est-ce qu'un compilateur ?",
    "Write a JSON object that describes a book.",
    "How do I read a file line by line in Rust?",
    "Who wrote Hamlet?",
    "Give me a C function that computes a factorial.",
    "What is a prefix cache in LLM serving?",
    "List the first ten prime numbers.",
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def complete(model: Path, prompts: list[list[int]]) -> list[list[int]]:
    """The server's output ids, one request at a time, so that every prompt is computed alone."""
    port = free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command += ["--enforce-eager", "--kv-cache-memory-bytes", str(256 << 20), "--max-model-len", "1024"]
    environment = {
        **os.environ,
        "VLLM_CPU_OMP_THREADS_BIND": "0-1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        try:
            wait_until_ready(server, port, log)
            url = f"http://127.0.0.1:{port}/v1/completions"
            body = {"model": "m", "max_tokens": TOKENS, "temperature": 0, "return_token_ids": True}
            answers = [httpx.post(url, json={**body, "prompt": ids}, timeout=300) for ids in prompts]
            return [answer.raise_for_status().json()["choices"][0]["token_ids"] for answer in answers]
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)


def wait_until_ready(server: subprocess.Popen[bytes], port: int, log: object) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            log.seek(0)  # type: ignore[attr-defined]
            raise SystemExit(f"the server ended:\n{log.read()[-3000:]}")  # type: ignore[attr-defined]
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(1)
    raise SystemExit(f"the server was not ready after {START_SECONDS} s")


def main(model: Path) -> int:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
        )["input_ids"]
        for question in QUESTIONS
    ]
    outputs = complete(model, prompts)
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    compared = equal = near_ties = failures = 0
    smallest_gap = float("inf")
    for question, prompt, output in zip(QUESTIONS, prompts, outputs, strict=True):
        with torch.inference_mode():
            logits = reference(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
        for position, (row, token) in enumerate(zip(logits, output, strict=True)):
            best = torch.topk(row, 2)
            gap = float(best.values[0] - best.values[1])
            smallest_gap = min(smallest_gap, gap)
            compared += 1
            if int(best.indices[0]) == token:
                equal += 1
                continue
            tie = gap < NEAR_TIE
            near_ties += tie
            failures += not tie
            print(f"{'near-tie' if tie else 'DIFFERENT'} at {position} of {question!r}: gap {gap:.6f}")
            break
    figures = {"prompts": len(prompts), "compared": compared, "equal": equal, "near_ties": near_ties}
    print(json.dumps({**figures, "failures": failures, "smallest_gap": smallest_gap}))
    print(json.dumps(tokenizer.decode(outputs[0])))
    return int(failures > 0 or compared < 10 * len(prompts) / 2)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
