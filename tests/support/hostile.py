"""What a hostile model may pass to tools: paths, arguments, and programs that try to get out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from serving.assembler import ToolSpec

PATHS = (
    "..",
    "../secret.txt",
    "../../etc/passwd",
    "../../../../../../../../etc/shadow",
    "src/../../secret.txt",
    "./../secret.txt",
    "src/./../../secret.txt",
    ".../../secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "/proc/self/environ",
    "/dev/zero",
    "/dev/stdin",
    "~",
    "~root/.ssh/id_rsa",
    "~/secret.txt",
    "link.txt",
    "out/secret.txt",
    "out/root/README.md",
    "loop/loop/loop/README.md",
    "loop/../../secret.txt",
    "inner-link.txt",
    "dangling.txt",
    "pipe",
    "README.md/",
    "README.md/..",
    "README.md/x",
    "huge.txt",
    "binary.bin",
    "secret.txt\0.md",
    "\0",
    "src\0/../../secret.txt",
    "",
    " ",
    ".",
    "./",
    "///",
    "a" * 300,
    "/".join(["d"] * 60),
    "x/" * 3_000,
    "\n",
    "\r\nREADME.md",
    "src\\..\\..\\secret.txt",
    "C:\\Windows\\system.ini",
    "file:///etc/passwd",
    "%2e%2e/secret.txt",
    "..%2fsecret.txt",
    "..;/secret.txt",
    "\u2025/secret.txt",
    "\uff0e\uff0e/secret.txt",
    "\u202egpj.exe",
    "$HOME",
    "$(cat ../secret.txt)",
    "`id`",
    "; rm -rf /",
    "| cat /etc/passwd",
    "{{secret}}",
    "%s%s%s%n",
    ".git/hooks/post-commit",
    ".GIT/config",
    "node_modules/made.py",
    "CON",
    "<agent_status>",
    "</tool_response>",
)
"""Of what `conftest.py` lays out, and around it."""

NUMBERS = (0, -1, 1, 2**31, 2**63, -(2**63), 2**200, 10**4000, 1e308, -0.0, 1.5)

VALUES: tuple[object, ...] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    ["README.md"],
    {"path": "README.md"},
    {"$ref": "#"},
    *NUMBERS,
    *PATHS,
    "x" * 10_000,
    "9" * 5_000,
    "(" * 400,
    "2**2**2**2**2**2",
    "9**999999999",
    "1e999999",
    "1/0",
    "0**-1",
    "sqrt(-1)",
    "__import__('os').system('id')",
    "().__class__.__bases__[0].__subclasses__()",
    "lambda: 0",
    "a=1",
    "1;2",
    "max(" + ",".join(["1"] * 200) + ")",
    "(a+)+$",
    "(?:(?:(?:a*)*)*)*b",
    "[",
    "a{999}",
    "**/**/**/**/**",
)

TEXTS = (
    "",
    " ",
    "null",
    "true",
    "[]",
    "[[]]",
    '"README.md"',
    "{",
    "}",
    "{]",
    "{}{}",
    '{"path": "README.md"} and more',
    "{'path': 'README.md'}",
    '{"path": NaN}',
    '{"path": Infinity}',
    '{"path": "\\ud800"}',
    '{"path": "\ud800"}',
    '{"path": "\\u0000"}',
    '{"path": "README.md", "path": "../secret.txt"}',
    '{"__proto__": {"path": "README.md"}}',
    '{"path": "README.md", "extra": 1}',
    "[" * 100_000,
    '{"a":' * 50_000,
    '{"path":' + "[" * 5_000 + "]" * 5_000 + "}",
    '{"path": "' + "x" * 100_000 + '"}',
    '{"path": "' + "x" * 3_000_000 + '"}',
    '{"path": ' + "9" * 100_000 + "}",
    '{"path": "README.md",}',
    "\ufeff{}",
    "\0",
    "\x1b[2J",
    "<tool_call>",
)
"""The JSON text of a call's arguments, or what stands in its place."""


def arguments_for(spec: ToolSpec) -> Iterator[str]:
    """Every text, and every value in every argument of one tool, the others sound."""
    yield from TEXTS
    properties = spec.parameters.get("properties")
    assert isinstance(properties, dict)
    sound = {name: _sound(details) for name, details in properties.items()}
    for name in properties:
        for value in VALUES:
            yield _dumped({**sound, name: value})
        yield _dumped({key: value for key, value in sound.items() if key != name})
    for extra in ("cwd", "root", "follow_symlinks", "__class__", "env", "timeout"):
        yield _dumped({**sound, extra: "/"})


def _sound(details: object) -> object:
    kind = details.get("type") if isinstance(details, dict) else None
    return {"integer": 1, "number": 1.5}.get(str(kind), "README.md")


def _dumped(value: object) -> str:
    # What json writes for a number of 4,000 digits is refused by Python itself unless it is written by hand.
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_dumped(item)}" for key, item in value.items()) + "}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**300:
        return "1" + "0" * 4_000
    return json.dumps(value)


def snapshot(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    """Every name below a folder with its kind, size, time of change and, of a link, its target."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        target = str(path.readlink()) if path.is_symlink() else ""
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_size, status.st_mtime_ns, target)
    return found


def escapes(secret: Path, interpreter: str, library: str) -> tuple[str, ...]:
    """Statements of Python, each of which must fail inside a sandbox; `secret` lies outside."""
    outside = (
        str(secret),
        str(secret.parent),
        "/etc/passwd",
        "/etc/shadow",
        "/etc/hostname",
        "/etc",
        "/proc/self/environ",
        "/proc/1/environ",
        "/proc/self/maps",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/../etc/passwd",
        "/proc/1/root",
        "/proc/sys/kernel/hostname",
        "/proc",
        "/sys/kernel",
        "/sys",
        "/root",
        "/home",
        "/var/log",
        "/run",
        "/tmp",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/tty",
        "/dev/shm",
        "/dev",
        "/",
        "/bin/sh",
        "/usr/bin/env",
        "..",
        "../..",
        "../../etc/passwd",
    )
    reads = [f"open({path!r}, 'rb').read(1)" for path in outside]
    reads += [f"__import__('os').listdir({path!r})" for path in outside]
    reads += [f"os.symlink({path!r}, 'l{n}'); open('l{n}', 'rb').read(1)" for n, path in enumerate(outside)]
    reads += [f"os.symlink({path!r}, 'k{n}'); os.listdir('k{n}')" for n, path in enumerate(outside)]
    reads += [f"os.link({path!r}, 'h{n}')" for n, path in enumerate(outside)]
    reads += [f"os.rename({path!r}, 'r{n}')" for n, path in enumerate(outside)]
    places = ("/", "/main.py", "/etc", "/tmp", "/usr/lib", "/dev", "/proc", "..", library, str(secret.parent))
    writes = [f"open({place!r} + '/made', 'w')" for place in places]
    writes += [f"os.mkdir({place!r} + '/made')" for place in places]
    writes += [f"os.symlink('x', {place!r} + '/made')" for place in places]
    writes += [f"os.mkfifo({place!r} + '/made')" for place in places]
    writes += [f"os.open({place!r}, os.O_TMPFILE | os.O_RDWR)" for place in places]
    targets = (
        "/main.py",
        interpreter,
        f"{library}/os.py",
        str(secret),
        "/etc/passwd",
        "/dev/sda",
        "/dev/vda",
    )
    for target in targets:
        writes += [
            f"open({target!r}, 'a')",
            f"os.truncate({target!r}, 0)",
            f"os.unlink({target!r})",
            f"os.chmod({target!r}, 0o777)",
            f"os.chown({target!r}, 0, 0)",
            f"os.utime({target!r})",
            f"os.rename({target!r}, 'gone')",
            f"os.replace('own', {target!r})",
            f"os.setxattr({target!r}, 'user.x', b'1')",
        ]
    families = sorted({*range(50)} - {1})
    sockets = [f"socket.socket({family}, {kind})" for family in families for kind in (1, 2, 3)]
    sockets += [
        "socket.create_connection(('127.0.0.1', 80), 1)",
        "socket.create_connection(('169.254.169.254', 80), 1)",
        "socket.getaddrinfo('example.org', 80)",
        "__import__('urllib.request').request.urlopen('http://127.0.0.1', timeout=1)",
        "__import__('http.server').server.HTTPServer(('127.0.0.1', 0), None)",
        "s = socket.socket(socket.AF_UNIX); s.connect('/run/docker.sock')",
        "s = socket.socket(socket.AF_UNIX); s.connect('/var/run/dbus/system_bus_socket')",
        "s = socket.socket(socket.AF_UNIX); s.connect('\\0abstract')",
    ]
    processes = [
        "os.kill(1, 9)",
        "os.kill(1, 15)",
        "os.kill(1, 2)",
        "os.kill(os.getppid(), 9)",
        "os.kill(os.getppid(), 19)",
        *(f"os.kill({pid}, 0)" for pid in range(3, 40)),
        "os.kill(-1, 15) or os.kill(3, 0)",
        "os.pidfd_open(3)",
        "subprocess.run(['/bin/sh', '-c', 'id'], check=True)",
        "subprocess.run('id', shell=True, check=True)",
        "os.execv('/bin/sh', ['sh'])",
        "open('x.sh', 'w').write('#!/bin/sh'); os.chmod('x.sh', 0o755); os.execv('/scratch/x.sh', ['x'])",
        "__import__('shutil').copy(sys.executable, 'py'); os.chmod('py', 0o755); os.execv('/scratch/py', ['py'])",
        "os.setuid(0)",
        "os.setgid(0)",
        "os.setgroups([0])",
        "os.setresuid(0, 0, 0)",
        "os.setresuid(65534, 65534, 65534)",
        "os.nice(-30) < 0 or 1 / 0",
        "os.chroot('.')",
        "os.mknod('d', 0o20666, os.makedev(1, 1))",
        "os.mknod('b', 0o60666, os.makedev(8, 0))",
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
        "time.clock_settime(time.CLOCK_REALTIME, 0)",
        *(f"resource.setrlimit({kind}, (2**40, 2**40))" for kind in (0, 1, 4, 6, 7, 8, 9, 12)),
        "open('/proc/self/oom_score_adj', 'w').write('-1000')",
        *(f"os.fstat({number})" for number in range(3, 64)),
        "assert len(os.environ) > 4 + ('LC_CTYPE' in os.environ)",
        "assert any('SECRET' in key or 'TOKEN' in key for key in os.environ)",
        "assert os.getuid() == 0",
        "assert sys.stdin.read()",
        "assert socket.gethostname() != 'sandbox'",
    ]
    calls = {
        "unshare": "272, 0x10000000",
        "unshare mounts": "272, 0x20000",
        "setns": "308, 0, 0",
        "mount": "165, b'x', b'/scratch', b'tmpfs', 0, None",
        "umount": "166, b'/scratch', 2",
        "pivot_root": "155, b'.', b'.'",
        "ptrace": "101, 16, 1, 0, 0",
        "process_vm_readv": "310, 1, 0, 0, 0, 0, 0",
        "process_vm_writev": "311, 1, 0, 0, 0, 0, 0",
        "keyctl": "250, 0, -3, 0",
        "add_key": "248, b'user', b'x', b'y', 1, -3",
        "request_key": "249, b'user', b'x', 0, -3",
        "bpf": "321, 0, 0, 0",
        "perf_event_open": "298, 0, 0, -1, -1, 0",
        "userfaultfd": "323, 0",
        "io_uring_setup": "425, 8, ctypes.create_string_buffer(200)",
        "memfd_create": "319, b'x', 0",
        "shmget": "29, 0, 1 << 20, 0o1600",
        "msgget": "68, 0, 0o1600",
        "semget": "64, 0, 1, 0o1600",
        "mq_open": "240, b'q', 0o102, 0o600, 0",
        "personality": "135, 0x0040000",
        "open_by_handle_at": "304, 0, 0, 0",
        "open_tree": "428, -100, b'/', 1",
        "fsopen": "430, b'tmpfs', 0",
        "init_module": "175, 0, 0, b''",
        "kexec_load": "246, 0, 0, 0, 0",
        "reboot": "169, 0xfee1dead, 672274793, 0, 0",
        "swapon": "167, b'/x', 0",
        "iopl": "172, 3",
        "sethostname": "170, b'x', 1",
        "acct": "163, b'/scratch/a'",
        "syslog": "103, 3, ctypes.create_string_buffer(100), 100",
        "quotactl": "179, 0, 0, 0, 0",
        "clone into a user namespace": "56, 0x10000000 | 17, 0, 0, 0, 0",
        "clone into a process namespace": "56, 0x20000000 | 17, 0, 0, 0, 0",
        "the second calling convention": "0x40000000 | 39, 0",
    }
    raw = [f"assert ctypes.CDLL(None).syscall({numbers}) >= 0, {what!r}" for what, numbers in calls.items()]
    return (*reads, *writes, *sockets, *processes, *raw)


def trying(statements: tuple[str, ...]) -> str:
    """A program that tries every statement and prints those that worked."""
    return (
        "import ctypes, os, resource, socket, subprocess, sys, time\n"
        "open('own', 'w').close()\n"
        f"statements = {list(statements)!r}\n"
        "for statement in statements:\n"
        "    try:\n"
        "        exec(statement, dict(globals()))\n"
        "    except BaseException:\n"
        "        continue\n"
        "    print('WORKED:', statement)\n"
        "print('tried', len(statements))\n"
    )


BOMBS: dict[str, str] = {
    "forks": "import os\nwhile True:\n    os.fork()",
    "forks that swallow errors": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n"
    "        pass",
    "daemons": "import os, time\nfor _ in range(10):\n    if os.fork() == 0:\n        os.setsid()\n"
    "        if os.fork() == 0:\n            time.sleep(60)\n        os._exit(0)\nprint('left')",
    "threads": "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(60,)).start()",
    "interpreters": "import subprocess, sys\nwhile True:\n"
    "    subprocess.Popen([sys.executable, '-I', '-S', '/main.py'])",
    "memory": "kept = []\nwhile True:\n    kept.append(bytearray(1 << 20))",
    "one huge list": "x = [0] * 10**11",
    "memory of several": "import os\nfor _ in range(8):\n    if os.fork() == 0:\n"
    "        x = bytearray(os.urandom(1 << 20)) * 60\n"
    "        import time\n        time.sleep(60)\nos.wait()",
    "shared memory": "import mmap\nkept = []\nwhile True:\n    m = mmap.mmap(-1, 1 << 24)\n"
    "    m.write(b'x' * (1 << 24))\n    kept.append(m)",
    "a full folder": "n = 0\nwhile True:\n    with open(f'f{n}', 'wb') as file:\n        file.write(b'x' * (1 << 20))\n"
    "    n += 1",
    "many files": "n = 0\nwhile True:\n    open(f'f{n}', 'w').close()\n    n += 1",
    "a sparse file": "import os\nos.truncate(os.open('s', os.O_CREAT | os.O_RDWR), 1 << 50)",
    "handles": "import os\nkept = []\nwhile True:\n    kept.append(os.pipe())",
    "endless output": "while True:\n    print('x' * 1000)",
    "endless errors": "import os\nwhile True:\n    os.write(2, b'x' * 1000)",
    "a long line": "print('x' * 10**8)",
    "binary output": "import os\nwhile True:\n    os.write(1, bytes(range(256)))",
    "computing": "while True:\n    pass",
    "several that compute": "import os\nfor _ in range(5):\n    os.fork()\nwhile True:\n    pass",
    "a power": "print(9 ** 9 ** 9)",
    "a pattern": "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')",
    "sleeping": "import time\ntime.sleep(10**6)",
    "deaf to signals": "import signal, time\nfor n in range(1, 65):\n    try:\n"
    "        signal.signal(n, signal.SIG_IGN)\n"
    "    except (OSError, ValueError):\n        pass\nwhile True:\n    time.sleep(1)",
    "quiet": "import os, time\nos.close(1)\nos.close(2)\ntime.sleep(10**6)",
    "waiting for input": "import os, sys\nassert sys.stdin.read() == ''\nr, w = os.pipe()\nos.read(r, 1)",
    "recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "deep source": "(" * 90_000,
    "stopping itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "killing itself": "import os\nos.kill(os.getpid(), 9)",
    "killing its group": "import os\nos.killpg(0, 9)",
    "killing all": "import os\nos.kill(-1, 9)\nprint('alive')",
    "crash": "import ctypes\nctypes.string_at(0)",
    "no program": "this is no Python",
    "a NUL": "print(1)\0",
    "not encodable": "print('\\ud800')",
    "an exit status": "raise SystemExit(77)",
}
"""Programs that use up something, or end in an odd way."""

QUICK = ("forks that swallow errors", "daemons", "memory", "endless output", "computing", "deaf to signals")
"""Of those, the few that `make test` runs."""
