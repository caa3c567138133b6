"""The parent of an engine: starts it, and ends it without leaving anything when the owner is gone, however that died.

    python -I -m serving.supervisor OWNER_PID TEMPORARY PYTHON [arguments]

A process of its own, because nobody else is left after a SIGKILL of the owner. It leads the session; SIGTERM is handed
on to the engine, and it ends as the engine ends, after whatever that has left, in a session of its own or not. If it
is killed itself, the kernel kills the engine. An owner that has released it (SIGUSR2) may end, and the engine goes on.
An engine whose output, which is ours, grows beyond `LOG_BYTES` is ended, and the last line of its log says so.
"""

import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path

import psutil

from serving.descendants import end_at_once, members, runs, shared_memory_files
from serving.temporary import remove

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLL_S = 0.05
LOOK_S = 1.0
LOG_BYTES = 10**9  # an engine logs some megabytes an hour; one that writes without end would fill the disk
OWNER_IS_GONE = signal.SIGUSR1
RELEASED = signal.SIGUSR2
WAITED_FOR = {OWNER_IS_GONE, RELEASED, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}


def main(owner: int, temporary: Path, command: list[str]) -> None:
    there_before = shared_memory_files()
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)
    _tie_to_parent(owner, OWNER_IS_GONE)
    _adopt_orphans()
    released = False
    me, engine = os.getpid(), os.fork()
    if engine == 0:
        _tie_to_parent(me, signal.SIGKILL)
        # The owner holds some of these back, too, while it starts us; a blocked signal stays blocked across exec.
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.execv(command[0], command)
    while True:
        found = signal.sigtimedwait(WAITED_FOR, LOOK_S)
        arrived = None if found is None else found.si_signo
        if arrived is None:
            if os.fstat(sys.stdout.fileno()).st_size > LOG_BYTES:
                _clear_away(there_before, temporary)
                sys.exit(f"\nserving.supervisor: error: ended, because its log is longer than {LOG_BYTES / 1e9:g} GB")
        elif arrived == RELEASED:
            released = True
        elif arrived == OWNER_IS_GONE:
            if not released:
                _clear_away(there_before, temporary)
                sys.exit("the owner is gone")
        elif arrived == signal.SIGCHLD:
            status = _reaped(engine)
            if status is not None:
                _clear_away(there_before, temporary)
                _end_like(os.waitstatus_to_exitcode(status))
        else:
            os.kill(engine, signal.SIGTERM)


def _tie_to_parent(parent: int, number: int) -> None:
    """`number` arrives when the parent dies."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number)) != 0:
        sys.exit(f"cannot tie the engine to its owner: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the owner is gone already")


def _adopt_orphans() -> None:
    """What the engine's processes leave behind becomes our child, even from a session of its own, so that it is found."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1) != 0:
        sys.exit(f"cannot adopt what the engine leaves: {os.strerror(ctypes.get_errno())}")


def _reaped(engine: int) -> int | None:
    """The wait status of the engine, if it has ended; every other child that has ended is let go, too."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == engine:
            found = status


def _clear_away(there_before: frozenset[Path], temporary: Path) -> None:
    found = members(os.getpid())

    def others() -> list[psutil.Process]:
        found.update(members(os.getpid()))
        return [process for process in found if process.pid != os.getpid() and runs(process)]

    shared = end_at_once(others)
    while others():
        time.sleep(POLL_S)
    for file in shared - there_before:
        file.unlink(missing_ok=True)
    remove(temporary)


def _end_like(status: int) -> None:
    """With the engine's status, or by the signal that ended it; without a core of our own."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-status})
        os.kill(os.getpid(), -status)
    sys.exit(status)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
