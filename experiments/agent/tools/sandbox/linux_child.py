"""Runs one program in isolation: a script of its own, started by `linux.py`, that imports nothing of the lab.

Three processes. The first (`main`) leaves the machine's namespaces and waits. The second is process 1 of the
new process namespace: it builds a root of its own in memory, starts the program and watches it; when it ends, for
whatever reason, the kernel ends everything in the namespace and the root is gone. The third gives up what is
left and becomes the program. All die with the lab: each asks the kernel for a signal when its parent dies.

A superuser becomes nobody before the program starts, since the kernel does not count the superuser's processes.
Everything that fails is told on the status pipe, as one line of JSON; nothing runs half isolated.

Longer than other files, for it is one script: a second file could not be imported without the lab's path. It does
without pathlib, whose import takes as long as the isolation.
"""

# ruff: noqa: PTH102, PTH103, PTH120, PTH211

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import stat
import struct
import sys
import time
from typing import Any, NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_NAMESPACES = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID | _CLONE_NEWNET

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_MOUNT_RDONLY, _MOUNT_NOSUID, _MOUNT_NODEV = 1, 2, 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SECCOMP_MODE_FILTER = 2

# These four have the same number on every machine.
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446
_SYS_MOUNT_SETATTR = 442

_LANDLOCK_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All rights on files that a version of Landlock knows."""
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1, 2, 4, 8, 1 << 14
_MAKE_DEVICES = (1 << 6) | (1 << 11)

NOBODY = 65534
"""The user and group that a superuser becomes; in no list of users does it own a file."""
INSIDE = 1000
"""The user and group that the program sees itself as."""
_NEW_ROOT = "/tmp"  # noqa: S108 - a folder that every system has, covered in a mount namespace of our own
_SCRATCH = "/scratch"
PROGRAM = "/main.py"
_LOOK_EVERY_MS = 20


class RefusedError(Exception):
    """The kernel did not do a step of the isolation."""


def main() -> None:
    """Read what to do from the first line of standard input, do it, and leave the status on its pipe."""
    task = json.loads(sys.stdin.buffer.readline())
    status = task["status_fd"]
    try:
        _watch_parent(signal.SIGTERM)
        if os.getppid() != task["parent"]:
            return  # died before it could be watched
        superuser = os.geteuid() == 0
        if not superuser:
            _enter_user_namespace(_NAMESPACES, os.open("/proc", os.O_RDONLY | os.O_DIRECTORY))
        else:
            _call("unshare", _libc.unshare(_NAMESPACES))
        lifeline, held = os.pipe()
        init = 0

        def end(_number: int, _frame: object) -> None:
            if init:
                os.kill(init, signal.SIGKILL)
            else:
                os._exit(1)

        signal.signal(signal.SIGTERM, end)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        init = os.fork()
        if init == 0:
            os.close(held)
            _be_init(task, status, lifeline, superuser)
        os.close(lifeline)
        for stream in (0, 1, 2, status):  # their end is seen when the program's end has come
            os.close(stream)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.waitpid(init, 0)
    except (OSError, RefusedError) as error:
        _tell(status, {"failed": str(error)})


def _be_init(task: dict[str, Any], status: int, lifeline: int, superuser: bool) -> None:
    """Process 1 of the namespace; never returns."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(
                number, signal.SIG_DFL
            )  # without a handler, process 1 cannot be signalled from inside
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        _watch_parent(signal.SIGKILL)
        processes = _build_root(task, NOBODY if superuser else INSIDE)
        if superuser:
            _become_nobody()
            _watch_parent(signal.SIGKILL)  # a change of user has switched it off
            _enter_user_namespace(0, processes)
        _write("sys/user/max_user_namespaces", "0", processes)
        program = _start(task, status, processes, own_processes=1 if superuser else 2)
        _tell(status, _watch(task["limits"], program, lifeline, processes))
    except (OSError, RefusedError, ValueError) as error:
        _tell(status, {"failed": str(error)})
    finally:
        os._exit(0)


def _build_root(task: dict[str, Any], owner: int) -> int:
    """A root that holds what the interpreter reads and a scratch folder; returns a handle of its `/proc`."""
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    # Opened before the new root covers anything: the interpreter may lie below it.
    sources = {path: os.open(path, os.O_PATH) for path in (*task["read"], *task["devices"])}
    _mount("tmpfs", _NEW_ROOT, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
    for path, source in sources.items():
        target = _NEW_ROOT + path
        if stat.S_ISDIR(os.fstat(source).st_mode):
            os.makedirs(target)
        else:
            _new_file(target, "")
        _mount(f"/proc/self/fd/{source}", target, None, _MS_BIND | _MS_REC)
        if path in task["read"]:
            _protect(target, _AT_RECURSIVE)
        os.close(source)
    for link, leads_to in task["links"]:
        os.makedirs(os.path.dirname(_NEW_ROOT + link), exist_ok=True)
        os.symlink(leads_to, _NEW_ROOT + link)
    _new_file(_NEW_ROOT + PROGRAM, task["program"])
    limits = task["limits"]
    scratch = f"size={limits['scratch_bytes']},nr_inodes={limits['scratch_files'] + 1},mode=700"
    os.mkdir(_NEW_ROOT + _SCRATCH)
    _mount(
        "tmpfs",
        _NEW_ROOT + _SCRATCH,
        "tmpfs",
        _MS_NOSUID | _MS_NODEV | _MS_NOEXEC,
        f"{scratch},uid={owner},gid={owner}",
    )
    # Needed for watching, and no business of the program: kept by its handle, under no name.
    os.mkdir(_NEW_ROOT + "/proc")
    _mount("proc", _NEW_ROOT + "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    processes = os.open(_NEW_ROOT + "/proc", os.O_RDONLY | os.O_DIRECTORY)
    _call("umount", _libc.umount2(f"{_NEW_ROOT}/proc".encode(), _MNT_DETACH))
    _protect(_NEW_ROOT, 0)
    os.chdir(_NEW_ROOT)
    _call("pivot_root", _libc.pivot_root(b".", b"."))  # the old root now lies on top of the new one
    _call("umount", _libc.umount2(b".", _MNT_DETACH))
    os.chdir("/")
    _call("sethostname", _libc.sethostname(b"sandbox", 7))
    return processes


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    # A change of user takes the right to write one's own files in /proc, which the next step needs.
    _prctl(_PR_SET_DUMPABLE, 1)


def _enter_user_namespace(more: int, processes: int) -> None:
    """A user namespace in which this user is an ordinary one; processes are counted in it alone (Linux 5.14)."""
    user, group = os.geteuid(), os.getegid()
    _call("unshare", _libc.unshare(_CLONE_NEWUSER | more))
    _write("self/setgroups", "deny", processes)
    _write("self/uid_map", f"{INSIDE} {user} 1", processes)
    _write("self/gid_map", f"{INSIDE} {group} 1", processes)


def _start(task: dict[str, Any], status: int, processes: int, *, own_processes: int) -> int:
    """Start the program and return its process id once it runs."""
    told, tell = os.pipe()
    program = os.fork()
    if program == 0:
        try:
            os.close(status)
            os.close(processes)
            os.setsid()
            _watch_parent(signal.SIGKILL)
            os.chdir(_SCRATCH)
            os.umask(0o077)
            os.nice(10)
            os.dup2(os.open("/dev/null", os.O_RDWR), 0)
            os.closerange(3, tell)
            os.closerange(tell + 1, 4096)
            _limit(task["limits"], own_processes)
            _prctl(_PR_SET_NO_NEW_PRIVS, 1)
            _landlock(task)
            _filter(bytes.fromhex(task["filter"]))
            os.execve(task["argv"][0], task["argv"], task["env"])  # noqa: S606
        except (OSError, RefusedError, ValueError) as error:
            os.write(tell, str(error).encode())
        finally:
            os._exit(1)
    os.close(tell)
    for stream in (0, 1, 2):
        os.close(stream)
    failed = os.read(told, 1_000)  # closed by the kernel, empty, when the program has replaced its process
    if failed:
        raise RefusedError(failed.decode())
    os.close(told)
    return program


def _limit(limits: dict[str, Any], own_processes: int) -> None:
    """Limits that the kernel holds, for each process or for the one user of this user namespace."""
    wanted = {
        resource.RLIMIT_AS: limits["memory_bytes"],
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        # One more than allowed, so that who passes the limit is seen and ended, beside the lab's own processes.
        resource.RLIMIT_NPROC: limits["processes"] + 1 + own_processes,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_FSIZE: limits["scratch_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for kind, value in wanted.items():
        _, most = resource.getrlimit(kind)
        bound = value if most == resource.RLIM_INFINITY else min(value, most)
        # The processor time that is all used up is told by SIGXCPU, a second before the kernel kills without a word.
        more = 1 if kind == resource.RLIMIT_CPU and bound < most % 2**63 else 0
        resource.setrlimit(kind, (bound, bound + more))


def _landlock(task: dict[str, Any]) -> None:
    """Files: what the interpreter reads, the program, the scratch folder, three devices; no TCP, no signals out."""
    version = _syscall(_SYS_LANDLOCK_CREATE, ctypes.c_void_p(None), ctypes.c_size_t(0), ctypes.c_uint(1))
    if version < 1:
        raise RefusedError(f"Landlock: {os.strerror(ctypes.get_errno())}")
    files = _LANDLOCK_FILES[min(version, max(_LANDLOCK_FILES))]
    attributes = struct.pack("<QQQ", files, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _call(
        "Landlock",
        _syscall(
            _SYS_LANDLOCK_CREATE,
            ctypes.c_char_p(attributes),
            ctypes.c_size_t(len(attributes)),
            ctypes.c_uint(0),
        ),
    )
    rights = dict.fromkeys(task["read"], _EXECUTE | _READ_FILE | _READ_DIR)
    rights |= dict.fromkeys(task["devices"], _READ_FILE | _WRITE_FILE | _TRUNCATE)
    rights |= {PROGRAM: _READ_FILE, _SCRATCH: files & ~_EXECUTE & ~_MAKE_DEVICES}
    for path, right in rights.items():
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            right &= ~_READ_DIR
        rule = ctypes.c_char_p(struct.pack("<Qi", right & files, handle))
        _call(
            "Landlock",
            _syscall(_SYS_LANDLOCK_ADD, ctypes.c_int(rules), ctypes.c_int(1), rule, ctypes.c_uint(0)),
        )
        os.close(handle)
    _call("Landlock", _syscall(_SYS_LANDLOCK_RESTRICT, ctypes.c_int(rules), ctypes.c_uint(0)))
    os.close(rules)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def _filter(program: bytes) -> None:
    """Hand the kernel the seccomp filter that `linux_filter.py` made."""
    wanted = _FilterProgram(len(program) // 8, program)
    _call("seccomp", _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(wanted), 0, 0))


def _watch(limits: dict[str, Any], program: int, lifeline: int, processes: int) -> dict[str, Any]:
    """Wait for the program's end or a limit, whichever comes first; what it started dies with this process."""
    deadline = time.monotonic() + limits["wall_seconds"]
    events = select.poll()
    events.register(os.pidfd_open(program), select.POLLIN)
    events.register(lifeline, select.POLLIN)
    while True:
        if any(handle == lifeline for handle, _ in events.poll(_LOOK_EVERY_MS)):
            os._exit(0)  # the first process is gone, and nobody asks
        if (status := _reaped(program)) is not None:
            return _how(status)
        used = _usage(processes)
        if used.processes > limits["processes"]:
            return {"ended": "processes"}
        if used.memory > limits["memory_bytes"]:
            return {"ended": "memory"}
        if used.cpu > limits["cpu_seconds"]:
            return {"ended": "cpu_time"}
        if time.monotonic() > deadline:
            return {"ended": "wall_time"}


def _reaped(program: int) -> int | None:
    """Collect everything that has ended, orphans too; the program's status if it was among them."""
    status = None
    while True:
        try:
            ended, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if ended == 0:
            return status
        if ended == program:
            status = code


def _how(status: int) -> dict[str, Any]:
    if os.WIFEXITED(status):
        return {"ended": "exited", "exit_status": os.WEXITSTATUS(status)}
    number = os.WTERMSIG(status)
    return {"ended": "cpu_time" if number == signal.SIGXCPU else "signal", "signal": number}


class _Usage(NamedTuple):
    """What all processes of the namespace use together, this one left out."""

    processes: int
    memory: int
    cpu: float


def _usage(processes: int) -> _Usage:
    count = resident = ticks = 0
    pids = [name for name in os.listdir(processes) if name.isdigit() and name != "1"]
    for pid in pids:
        fields = _read(f"{pid}/stat", processes).rpartition(")")[2].split()
        if fields:
            ticks += sum(map(int, fields[11:15]))
            count += max(1, int(fields[17]))
            resident += int(fields[21])
    memory = resident * resource.getpagesize()
    if memory > 2**28 and len(pids) > 1:
        # Forked processes share pages, each of which the cheap count has counted once a process.
        memory = sum(_share(_read(f"{pid}/smaps_rollup", processes)) for pid in pids)
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = ticks / os.sysconf("SC_CLK_TCK") + gone.ru_utime + gone.ru_stime
    return _Usage(count, memory, cpu)


def _share(rollup: str) -> int:
    return sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))


def _read(path: str, processes: int) -> str:
    """A file of a process; empty when the process has gone."""
    try:
        handle = os.open(path, os.O_RDONLY, dir_fd=processes)
    except (FileNotFoundError, ProcessLookupError):
        return ""
    try:
        return os.read(handle, 8_192).decode("ascii", "replace")
    except ProcessLookupError:
        return ""
    finally:
        os.close(handle)


def _write(path: str, text: str, processes: int) -> None:
    handle = os.open(path, os.O_WRONLY, dir_fd=processes)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _new_file(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    data = text.encode()
    while data:
        data = data[os.write(handle, data) :]
    os.close(handle)


def _watch_parent(number: int) -> None:
    """Be sent a signal when the parent dies."""
    _prctl(_PR_SET_PDEATHSIG, number)


def _protect(path: str, flags: int) -> None:
    """Nothing below a mount is written, or gives rights, or is a device."""
    attributes = struct.pack("<QQQQ", _MOUNT_RDONLY | _MOUNT_NOSUID | _MOUNT_NODEV, 0, 0, 0)
    where = (ctypes.c_int(_AT_FDCWD), ctypes.c_char_p(path.encode()), ctypes.c_uint(flags))
    done = _syscall(_SYS_MOUNT_SETATTR, *where, ctypes.c_char_p(attributes), ctypes.c_size_t(len(attributes)))
    _call("mount_setattr", done)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    done = _libc.mount(
        None if source is None else source.encode(),
        target.encode(),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )
    _call(f"mount {kind or 'bind'}", done)


def _prctl(option: int, value: int) -> None:
    unsigned = ctypes.c_ulong
    _call("prctl", _libc.prctl(option, unsigned(value), unsigned(0), unsigned(0), unsigned(0)))


def _syscall(number: int, *arguments: Any) -> int:
    return int(_libc.syscall(ctypes.c_long(number), *arguments))


def _call(what: str, result: int) -> int:
    if result < 0:
        raise RefusedError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _tell(status: int, what: dict[str, Any]) -> None:
    os.write(status, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main()
