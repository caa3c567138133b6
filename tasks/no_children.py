"""A seccomp filter under which a process stays one thread: what it does, it does on the clock that is read from outside.

Threads and processes are refused, not counted: work cannot move to where no clock looks.
"""

import errno
import struct

from serving.errors import Broken

# linux/filter.h, linux/seccomp.h, linux/audit.h
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X86_64 = 0xC000003E
_X32 = 0x40000000  # from here on the same calls have second numbers
_CLONE, _FORK, _VFORK, _CLONE3 = 56, 57, 58, 435


def no_children(machine: str) -> bytes:
    """The filter as bubblewrap takes it (`--seccomp`). Raises Broken on another machine than x86-64.

    `clone3` hides its flags in memory, so it is answered as unknown, and libc goes back to `clone`.
    """
    if machine != "x86_64":
        raise Broken(f"CPU candidates cannot be held to one thread on `{machine}`", "run them on an x86-64 machine")
    refused = [(_EQUAL, number, errno.EPERM) for number in (_CLONE, _FORK, _VFORK)]
    lines = [_line(_LOAD, _ARCHITECTURE), _line(_EQUAL, _X86_64, 1, 0), _line(_RETURN, _ERRNO | errno.EPERM)]
    lines.append(_line(_LOAD, _NUMBER))
    for test, number, error in ((_AT_LEAST, _X32, errno.EPERM), *refused, (_EQUAL, _CLONE3, errno.ENOSYS)):
        lines += [_line(test, number, 0, 1), _line(_RETURN, _ERRNO | error)]
    return b"".join([*lines, _line(_RETURN, _ALLOW)])


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """struct sock_filter: jumps are counts of lines to leave out."""
    return struct.pack("HBBI", code, if_true, if_false, value)
