"""Basic blocks of a kernel's machine code, and which of them every warp passes.

A block that every path from entry to exit passes issues all its instructions, predicated ones too. How often the others
run, the code does not tell; tasks/branch_weights.py takes that from the lines that they come from.
"""

from collections.abc import Sequence

from tasks.disassembly import Instruction
from tasks.records import Record

BRANCHES = ("BRA", "BRX", "JMP")
_ENDS = ("EXIT", "RET")


class Stretch(Record):
    """Instructions `start` to `end` (not included) run one after another. `always`: by every warp."""

    start: int
    end: int
    always: bool


def loops(body: Sequence[Instruction]) -> bool:
    """Whether any instruction may run more than once: a branch backwards, or to where the code does not tell."""
    return any(x.base in BRANCHES and (x.target is None or x.target <= i) for i, x in enumerate(body))


def stretches(body: Sequence[Instruction]) -> list[Stretch]:
    """The basic blocks of code that has no loop, in order."""
    ends = [i for i, x in enumerate(body) if x.base in (*BRANCHES, *_ENDS)]
    leaders = {0, *(i + 1 for i in ends), *(x.target for x in body if x.base in BRANCHES and x.target is not None)}
    starts = sorted(leader for leader in leaders if leader < len(body))
    limits = list(zip(starts, [*starts[1:], len(body)], strict=True))
    following = {start: _following(body, end) for start, end in limits}
    return [
        Stretch(start=start, end=end, always=not _leaves(following, without=start)) for start, end in limits
    ]  # fmt: skip


def _following(body: Sequence[Instruction], end: int) -> list[int | None]:
    """Where a block goes on; None is the end of the kernel."""
    last = body[end - 1]
    beyond = end if end < len(body) else None
    if last.base in _ENDS:
        return [None, beyond] if last.conditional else [None]
    if last.base in BRANCHES:
        return [last.target, beyond] if last.conditional else [last.target]
    return [beyond]


def _leaves(following: dict[int, list[int | None]], without: int) -> bool:
    """Whether the end can be reached from the entry without passing one block."""
    pending, seen = [0], {without}
    while pending:
        block = pending.pop()
        if block in seen:
            continue
        seen.add(block)
        for after in following[block]:
            if after is None:
                return True
            pending.append(after)
    return False
