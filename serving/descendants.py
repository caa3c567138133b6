"""The processes that descend from a leader, what they hold in shared memory, and how to end them all."""

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")


def members(leader: int) -> set[psutil.Process]:
    """The session of `leader` and all descendants of its processes."""
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader:
                found |= {process, *process.children(recursive=True)}
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def runs(process: psutil.Process) -> bool:
    """Whether it is there and not a zombie, which holds nothing and waits for its parent."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pending(pid: int, number: int) -> bool:
    """Whether a signal was sent to the process and not taken yet."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    waiting = next((line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:")), "0")
    return bool(int(waiting, 16) >> (number - 1) & 1)


def end_at_once(alive: Callable[[], list[psutil.Process]]) -> set[Path]:
    """Kills them, suspended first so that none starts or makes anything meanwhile; the files they held in shared memory."""
    suspended: set[psutil.Process] = set()
    while fresh := set(alive()) - suspended:
        _each(fresh, psutil.Process.suspend)
        suspended |= fresh
    shared = {file for process in suspended for file in shared_memory_of(process)}
    _each(suspended, psutil.Process.kill)
    return shared


def _each(processes: Iterable[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            act(process)


def shared_memory_files() -> frozenset[Path]:
    return frozenset(SHARED_MEMORY.iterdir()) if SHARED_MEMORY.is_dir() else frozenset()


def shared_memory_of(process: psutil.Process) -> set[Path]:
    """Files under /dev/shm that the process has mapped or open.

    By inode: the C library gives a semaphore its name only after mapping it under another one.
    """
    folder, held = Path(f"/proc/{process.pid}"), set[int]()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        maps = (folder / "maps").read_text(encoding="utf-8", errors="surrogateescape")
        held |= {int(line.split(maxsplit=5)[4]) for line in maps.splitlines() if f" {SHARED_MEMORY}/" in line}
        for descriptor in (folder / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(descriptor).startswith(f"{SHARED_MEMORY}/"):
                    held.add(descriptor.stat().st_ino)
    return {file for file in shared_memory_files() if held and _inode(file) in held}


def _inode(file: Path) -> int | None:
    try:
        return file.stat().st_ino
    except FileNotFoundError:
        return None
