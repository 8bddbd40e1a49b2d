"""Lines without a secret that are full of what resembles one: logs of many programs, and this Python's own source."""

from __future__ import annotations

import base64
import re
import sysconfig
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

MAKES: Mapping[str, Callable[[Random, int], str]] = {
    "hex": lambda r, size: r.randbytes(size).hex(),
    "base64": lambda r, size: base64.b64encode(r.randbytes(size)).decode(),
    "url64": lambda r, size: base64.urlsafe_b64encode(r.randbytes(size)).decode(),
    "uuid": lambda r, _: str(uuid.UUID(bytes=r.randbytes(16), version=4)),
    "d": lambda r, size: str(r.randrange(10 ** (size - 1), 10**size)),
    "long": lambda r, _: str(r.randrange(10**9, 10 ** r.randrange(10, 20))),
    "upto": lambda r, limit: str(r.randrange(limit)),
    "float": lambda r, places: f"{r.uniform(-90, 90):.{places}f}",
    "ip": lambda r, _: ".".join(str(r.randrange(256)) for _ in range(4)),
    "version": lambda r, _: f"{r.randrange(30)}.{r.randrange(200)}.{r.randrange(3000)}",
    "time": lambda r, _: (datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=r.random() * 3e7)).isoformat(),
    "ms": lambda r, _: str(1_700_000_000_000 + r.randrange(10**10)),
    "us": lambda r, _: str(1_700_000_000_000_000 + r.randrange(10**13)),
    "snowflake": lambda r, _: str(r.randrange(10**17, 2 * 10**18)),
}

LINES: tuple[str, ...] = (
    '<ip> - - [<time>] "GET /v1/items/<uuid>?page=<upto99> HTTP/1.1" 200 <d5>',
    "<time> INFO request_id=<uuid> trace_id=<hex16> span_id=<hex8> took <float9>s",
    "commit <hex20> (HEAD -> main, origin/main)",
    "diff --git a/app.py b/app.py index <hex4>..<hex4> 100644",
    '      "integrity": "sha512-<base64:64>",',
    '    "resolved": "https://registry.npmjs.org/left-pad/-/left-pad-<version>.tgz#<hex20>",',
    "github.com/acme/tool v<version>-0.20240102150405-<hex6> h1:<base64:32>",
    "torch==<version> --hash=sha256:<hex32>",
    "Digest: sha256:<hex32> Status: Downloaded newer image for python:<version>",
    'ETag: "<hex16>-<upto99>" x-amz-request-id: <hex8> x-amz-id-2: <base64:57>',
    "order=<long> sku=<d3>-<d2>-<d3> qty=<upto9>",
    "ticket <d3>-<d7> moved to <d4>-<d3>-<d4>",
    "epoch=<d10> ms=<ms> us=<us>",
    "snowflake <snowflake> shard <upto64> delta +<upto999> -<upto999>",
    "systemd[1]: Started user@<upto2000>.service; getty@tty<upto9>.service loaded",
    "sshd[<d5>]: Accepted publickey for deploy from <ip> port <d5> ssh2: RSA SHA256:<base64:32>",
    "INFO prompt_tokens=<d4> cached_tokens=<d4> max_tokens=4096 tokens/s: <float2>",
    '{"usage": {"prompt_tokens": <d5>, "completion_tokens": 17}, "id": "chatcmpl-<hex16>"}',
    '{"eos_token": "<|im_end|>", "bos_token_id": <d6>, "tokenizer": "qwen2-<version>", "key": "<hex8>"}',
    "next_token: <base64:24> continuation_token=<hex16> page_token=<hex12>",
    "cache_key=<hex20> public_key=<hex32> primary_key=<d8> key_id=<uuid>",
    "E0<d3> 10:11:12.<d6>       1 controller.go:<upto999>] pod web-<hex4>-<hex2> uid <uuid>",
    "ghcr.io/acme/app@sha256:<hex32> and actions/checkout@v<upto6>, @types/node@<version>",
    "git@github.com:acme/tool-<upto99>.git <hex20> refs/heads/main; icon@2x.png; q@k.T",
    "lat=<float7> lon=<float7> mac=<hex1>:<hex1>:<hex1>:<hex1>:<hex1>:<hex1>",
    '  File "/usr/lib/python3.11/site-packages/acme/token_store.py", line <upto999>, in refresh_token',
    "0x<hex8>: <hex2> <hex2> <hex2> <hex2> <hex2> <hex2> <hex2> <hex2>  |................|",
    "SID S-1-5-21-<d10>-<d10>-<d9>-<d4>",
    "GTIN <d13> ISBN 978-<d1>-<d4>-<d4>-<d1> <float15>",
    "arn:aws:iam::<d12>:role/ci-<hex4> arn:aws:secretsmanager:eu-west-1:<d12>:secret:db-<hex3>",
    "data:image/png;base64,iVBORw0KGgo<base64:120>",
    'nonce <url64:24> etag W/"<hex10>" sid=<hex16>',
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI<base64:32> deploy@build-<upto99>",
    "uid=1000(app) gid=1000(app) PWD=/home/app/src-<upto99> OLDPWD=/var/lib/app<upto99>/data",
    "ALTER TABLE users ADD password_hash text; -- migration <time> <hex6>",
    "POST https://acme.io:8443/oauth/token?grant_type=client_credentials&scope=read -> 401 in <upto999>ms",
    "gauge:mem <d8>:<uuid> total=$<upto9999>.<d2>",
)
"""Ids, digests, stamps and numbers in the shapes in which programs log them; `<name:size>` is drawn anew."""

_BLANK = re.compile(rf"<({'|'.join(MAKES)}):?(\d*)>")


PLACEHOLDERS: tuple[str, ...] = (
    "export GITHUB_TOKEN=ghp_" + "x" * 36,
    "OPENAI_API_KEY=sk-...",
    "OPENAI_API_KEY=sk-your-key-goes-right-here-and-nowhere-else-please",
    "ANTHROPIC_API_KEY=sk-ant-api03-your-key-here",
    "aws_access_key_id = AKIAXXXXXXXXXXXXXXXX",
    "aws_secret_access_key = <your secret access key>",
    "password=********",
    "password: changeme",
    'password = os.environ["DB_PASSWORD"]',
    "password=${DB_PASSWORD}",
    'password = getpass.getpass("Password: ")',
    "token: ${{ secrets.GITHUB_TOKEN }}",
    'headers = {"Authorization": f"Bearer {token}"}',
    "Authorization: Bearer <access-token>",
    "Authorization: Bearer $ACCESS_TOKEN",
    "postgres://user:{password}@host/db",
    "postgres://user:$PGPASSWORD@host/db",
    "https://user:***@host/path",
    "secret = get_secret_value(SecretId='prod/db')",
    "api_key: str = Field(default='', description='the key')",
    "the token is base64-encoded and the password is required",
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0B\n-----END CERTIFICATE-----",
    "call us at 555-0100 or extension 12",
    "SSN format is XXX-XX-XXXX",
    "4111 1111 1111 1112 has a wrong check digit",
    "DE00 3704 0044 0532 0130 00 has wrong check digits",
    "hf_transformers_integration_test_suite",
    "npm_config_registry=https://registry.npmjs.org/",
    "xoxb-your-token",
    "eyJhbGciOi... is how a token begins",
)
"""What stands where a secret would, and what only begins as one."""


def log_lines(seed: int, count: int) -> Iterator[str]:
    """`count` lines of logs; the same seed makes the same lines."""
    r = Random(seed)
    for turn in range(count):
        yield _BLANK.sub(lambda blank: MAKES[blank[1]](r, int(blank[2] or 0)), LINES[turn % len(LINES)])


def source_lines() -> Iterator[str]:
    """Every line of the standard library but its tests, which hold real keys, and lines that give an address.

    An address of an author, or of a user in a URL, is personal data by the rules of this lab and no false alarm.
    """
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not {"site-packages", "test", "tests", "idle_test"}.isdisjoint(parts):
            continue
        for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            if not gives_an_address(line):
                yield line


def gives_an_address(line: str) -> bool:
    """Whether a word of the line has something before an `@` and a dotted name behind it."""
    for word in (
        line.replace("<", " ").replace(">", " ").replace("(", " ").replace('"', " ").replace("'", " ").split()
    ):
        before, at, behind = word.partition("@")
        if at and before and "." in behind:
            return True
    return False
