"""A process known for good: its pid together with when it started, so that nobody else is taken for it later."""

import os
import socket
from pathlib import Path
from typing import Annotated

import psutil
from pydantic import BaseModel, ConfigDict, Field

from serving.descendants import runs

# Of the words behind the name in /proc/PID/stat, the one that says when the process started.
START_WORD = 19


class ProcessId(BaseModel):
    """`started_ticks`: clock ticks from the boot of the machine to the start of the process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: Annotated[int, Field(ge=1, lt=2**31)]
    started_ticks: int


def identity(pid: int) -> ProcessId | None:
    """Who has this pid now; None if nobody has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in brackets and may hold anything, brackets and spaces too.
    return ProcessId(pid=pid, started_ticks=int(stat.rpartition(")")[2].split()[START_WORD]))


def still_there(known: ProcessId) -> psutil.Process | None:
    """The process, unless it has ended (a zombie has) or its pid belongs to another one by now."""
    try:
        process = psutil.Process(known.pid)
    except psutil.NoSuchProcess:
        return None
    return process if identity(known.pid) == known and runs(process) else None


def this_machine() -> str:
    """HOST/BOOT/PIDS that a `ProcessId` makes sense in: not after a reboot, nor in another container, nor elsewhere."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname()}/{boot}/{os.stat('/proc/self/ns/pid').st_ino}"


def was_before_boot(machine: str) -> bool:
    """Whether it is this host as it was before it was booted last, so that none of its processes can be left."""
    (host, boot), (our_host, our_boot) = (name.split("/")[:2] for name in (machine, this_machine()))
    return host == our_host and boot != our_boot
