"""Starts the process that holds a CPU candidate: sandboxed, under the filter that keeps it one thread, with its memory."""

import fcntl
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import psutil

from serving.errors import Broken
from tasks.bubblewrap import INSIDE_SCRIPTS, LIMITED, isolation, limit_words
from tasks.ending import Limits
from tasks.no_children import no_children

_ENTER = f'{LIMITED}\nexec "$@"'


def shared_memory(size: int) -> int:
    """Memory that a candidate can write to and cannot shrink: reading past its end would kill us."""
    memory = os.memfd_create("infra-agent", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(memory, size)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return memory


def start_process(
    folder: Path, channel: socket.socket, memory: int, log: IO[bytes], limits: Limits
) -> "subprocess.Popen[bytes]":
    """`channel` becomes its standard input; what it prints goes to `log`, within the limit of a file."""
    read, write = os.pipe()
    try:
        os.write(write, no_children(platform.machine()))
        os.close(write)
        return subprocess.Popen(
            [*isolation(folder, limits, read_only=True), "--seccomp", str(read), "--", "/bin/sh", "-c", _ENTER, "sh",
             *limit_words(limits), sys.executable, "-I", "-B", f"{INSIDE_SCRIPTS}/native.py", str(memory)],
            stdin=channel.fileno(), stdout=log, stderr=log, pass_fds=(read, memory), start_new_session=True, env={},
        )  # fmt: skip
    finally:
        os.close(read)


def single_process(bubblewrap: int) -> int:
    """The process id of the candidate as seen here; the filter that keeps it alone must be in force."""
    try:
        inside = psutil.Process(bubblewrap).children(recursive=True)
        status = Path(f"/proc/{inside[-1].pid}/status").read_text() if len(inside) == 2 else ""
    except (psutil.Error, OSError):
        status = ""
    if "Seccomp:\t2" not in status or "Threads:\t1\n" not in status:
        raise Broken("a candidate's process is not alone in its sandbox", "look at `infra-agent doctor`")
    return inside[-1].pid
