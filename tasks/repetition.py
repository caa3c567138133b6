"""Work that programs repeat: lines that compute something that does not depend on an axis of the grid.

Loads alone do not count: a program that did not compute a value would have to load it.
"""

from collections.abc import Iterable
from itertools import pairwise

from tasks.compiled import Launch
from tasks.line_axes import Line
from tasks.records import Record
from tasks.sass import Code, LineWork

COMPUTING = ("fp32", "mufu", "tensor")
SMALLEST_SHARE = 0.01  # of the instructions of a step; less is not worth a line in a report


class Repetition(Record):
    """`lines` of a kernel run `times` times over along `axis`. Counts are of all programs of the launch."""

    kernel: str
    lines: tuple[int, ...]
    axis: int
    times: int
    warp_instructions: int
    mufu: int

    @property
    def name(self) -> str:
        lines = "lines" if len(self.lines) > 1 else "line"
        return f"{self.kernel} {lines} {ranges(self.lines)} along axis {self.axis}"


def repetitions(launch: Launch, code: Code, lines: dict[int, Line]) -> list[Repetition]:
    """One for each axis of the grid along which something is computed more than once."""
    found = []
    for axis, times in enumerate(launch.grid):
        if times == 1 or not any(axis in line.values for line in lines.values()):
            continue
        repeated = {
            number: work
            for number, work in code.lines.items()
            if number in lines and axis not in lines[number].values and _computes(work)
        }
        if repeated:
            found.append(
                Repetition(
                    kernel=launch.kernel, lines=tuple(repeated), axis=axis, times=times,
                    warp_instructions=launch.warps * sum(work.instructions for work in repeated.values()),
                    mufu=launch.warps * sum(work.mufu for work in repeated.values()),
                )
            )  # fmt: skip
    return found


def ranges(numbers: Iterable[int]) -> str:
    """`29-33, 40` for 29, 30, 31, 32, 33, 40."""
    ordered = sorted(numbers)
    breaks = [i for i, (a, b) in enumerate(pairwise(ordered), 1) if b != a + 1]
    runs = [ordered[start:end] for start, end in zip([0, *breaks], [*breaks, len(ordered)], strict=True)]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs if run)


def _computes(work: LineWork) -> bool:
    return any(work.pipes.get(pipe) for pipe in COMPUTING)
