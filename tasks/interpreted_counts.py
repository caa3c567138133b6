"""What the interpreter counted in the checks, as blocks of the numerics evidence, and what it means for production shapes.

A production shape takes over the counts of a check of whole cycles that launches the same variants (tasks/coverage.py):
bytes in proportion to the programs, and the share of programs in which a line runs as it is.
"""

from collections.abc import Mapping

from tasks.compiled import Compiled, Launch
from tasks.coverage import alike, covering
from tasks.definition import Check, Timing
from tasks.interpreted import Counted, counted_steps
from tasks.line_axes import Line
from tasks.problem import Problem
from tasks.records import Arm, Block, Evidence

BYTES = ("requested_bytes", "unique_bytes")
SHARE = "line_share"
COUNTED_AT = "counted at "
NOT_COUNTED = "bytes are counted in the interpreter: ask `check numerics`, or `run`"


def counted_blocks(problem: Problem, arm: Arm, counted: Mapping[str, Mapping[str, Counted]], first: int) -> list[Block]:
    """Per check and kernel: bytes of one step, and the share of programs of each stretch that does not run in all."""
    found: list[Block] = []

    def note(observable: str, unit: str, check: Check, part: str, value: float) -> None:
        block = Block(
            arm=arm, observable=observable, unit=unit, workload=check.name, value=value, part=part,
            order=first + len(found),
        )  # fmt: skip
        found.append(block)

    for check in problem.workloads.checks:
        steps = counted_steps(problem, check)
        for kernel, seen in counted.get(check.name, {}).items() if steps else ():
            note("requested_bytes", "B", check, kernel, seen.requested_bytes / steps)
            note("unique_bytes", "B", check, kernel, seen.unique_bytes / steps)
            for line, ran in sorted(seen.ran_in.items()):
                if ran < seen.programs:
                    note(SHARE, "1", check, f"{kernel}:{line}", ran / seen.programs)
    return found


def line_shares(
    problem: Problem, compiled: Compiled, timing: Timing, arm: Arm, lines: Mapping[str, Mapping[int, Line]],
    interpreted: Evidence | None,
) -> dict[str, dict[int, float]]:  # fmt: skip
    """Kernel → line → share of programs in which it runs, where that is known and below 1.

    Left out, and so counted in full, are lines for which the index of a program decides along an axis of another size.
    """
    check = _counted_at(problem, compiled, timing) if interpreted is not None else None
    if interpreted is None or check is None:
        return {}
    grids = {x.kernel: (x.grid, y.grid) for x, y in zip(*_launches(compiled, timing, check), strict=True)}
    shares = {
        block.part: block.value
        for block in interpreted.blocks
        if (block.arm, block.observable, block.workload) == (arm, SHARE, check.name) and block.value
    }
    return {
        kernel: {
            number: shares[f"{kernel}:{line.stretch}"]
            for number, line in found.items()
            if f"{kernel}:{line.stretch}" in shares and all(ours[axis] == theirs[axis] for axis in line.decided)
        }
        for kernel, found in lines.items()
        if kernel in grids
        for ours, theirs in [grids[kernel]]
    }


def bytes_moved(
    problem: Problem, compiled: Compiled, timing: Timing, arm: Arm, interpreted: Evidence | None, first: int
) -> list[Block]:
    """Bytes of a whole step, scaled by programs from the check that its `part` names; unknown where none speaks for it."""
    check = _counted_at(problem, compiled, timing) if interpreted is not None else None
    scale = _scale(compiled, timing, check) if check is not None else None
    found = []
    for order, observable in enumerate(BYTES, first):
        counted = [
            b.value
            for b in (interpreted.blocks if interpreted and check else ())
            if check and (b.arm, b.observable, b.workload) == (arm, observable, check.name) and b.value is not None
        ]
        known = scale is not None and bool(counted)
        reason = NOT_COUNTED if interpreted is None else "no check of whole cycles covers this shape"
        found.append(
            Block(
                arm=arm, observable=observable, unit="B", workload=timing.name, order=order,
                value=scale * sum(counted) if scale is not None and counted else None,
                part=f"{COUNTED_AT}{check.name}" if check and known else None,
                reason=None if known else reason,
            )
        )  # fmt: skip
    return found


def _counted_at(problem: Problem, compiled: Compiled, timing: Timing) -> Check | None:
    """The check whose counts a production shape takes over: one that covers it, else one with the same variants."""
    cycle = problem.cycle_of(timing)
    whole = [x for x in problem.workloads.checks if (n := counted_steps(problem, x)) and n % cycle == 0]
    check = covering(problem, compiled, timing)
    return check if check in whole else alike(compiled, timing, whole)


def _scale(compiled: Compiled, timing: Timing, check: Check) -> float | None:
    """How many times the programs of the check; None if that is not the same for all launches."""
    scales = {one.programs / other.programs for one, other in zip(*_launches(compiled, timing, check), strict=True)}
    return scales.pop() if len(scales) == 1 else None


def _launches(compiled: Compiled, *workloads: Timing) -> list[tuple[Launch, ...]]:
    return [compiled.workloads[x.name] for x in workloads]
