"""Do the checked shapes speak for the production shapes? Work is counted at those, and results are checked at smaller ones.

A production shape is covered by a check of the same dtypes and scalars and of the same size in every axis but the batch,
if both launch the same kernels in the same variants and order, and the programs of each are proportional to the batch.
"""

from collections.abc import Sequence

from tasks.compiled import Compiled, Launch
from tasks.definition import Check, Timing
from tasks.problem import Problem
from tasks.records import Scalar


def uncovered(problem: Problem, compiled: Compiled) -> str | None:
    """A production shape that no check covers, and in what the nearest check differs; None if there is none."""
    for timing in problem.workloads.timings:
        reasons = [_difference(problem, compiled, timing, check) for check in _near(problem, timing)]
        if None not in reasons:
            why = reasons[0] if reasons else f"no check is of its kind {problem.kind_of(timing)}"
            return f"results at {timing.name} are covered by no check: {why}"
    return None


def covering(problem: Problem, compiled: Compiled, timing: Timing) -> Check | None:
    """The check that speaks for a production shape: of several, the one with most steps, then the largest batch."""
    found = [x for x in _near(problem, timing) if _difference(problem, compiled, timing, x) is None]
    return max(found, key=lambda x: (x.steps, problem.batch_of(x)), default=None)


def alike(compiled: Compiled, timing: Timing, checks: Sequence[Check]) -> Check | None:
    """The check with most steps that launches the same kernels in the same variants, in grids of any size.

    It speaks for how often a line runs and what a program moves, not for results: these need `covering`.
    """
    found = [x for x in checks if _same_variants(compiled.workloads[timing.name], compiled.workloads[x.name])]
    return max(found, key=lambda x: x.steps, default=None)


def _same_variants(ours: Sequence[Launch], theirs: Sequence[Launch]) -> bool:
    return [_variant(x) for x in ours] == [_variant(x) for x in theirs]


def _variant(launch: Launch) -> tuple[object, ...]:
    return launch.kernel, launch.source, launch.constexprs, launch.specialised, launch.scalars


def _near(problem: Problem, timing: Timing) -> list[Check]:
    return [check for check in problem.workloads.checks if problem.kind_of(check) == problem.kind_of(timing)]


def _difference(problem: Problem, compiled: Compiled, timing: Timing, check: Timing) -> str | None:
    """Why results of `check` say nothing about `timing`; None if they do."""
    ours, theirs = compiled.workloads[timing.name], compiled.workloads[check.name]
    if len(ours) != len(theirs):
        return f"{len(ours)} launches, {len(theirs)} at {check.name}"
    sizes = problem.batch_of(timing), problem.batch_of(check)
    for one, other in zip(ours, theirs, strict=True):
        changed = _changed(one, other, sizes)
        if changed is not None:
            return f"kernel `{one.kernel}` has {changed} at {check.name}"
    return None


def _changed(one: Launch, other: Launch, sizes: tuple[int, int]) -> str | None:
    if (one.kernel, one.source) != (other.kernel, other.source):
        return f"the place of kernel `{other.kernel}`"
    for what, ours, theirs in (
        ("constexpr", one.constexprs, other.constexprs),
        ("argument", one.specialised, other.specialised),
    ):
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name):
                return f"{what} {name} `{ours.get(name)}`, `{theirs.get(name)}`"
    if one.programs * sizes[1] != other.programs * sizes[0]:
        return f"{one.programs} programs for a batch of {sizes[0]}, {other.programs} for {sizes[1]}"
    for name, value in one.scalars.items():
        if not _follows(value, other.scalars.get(name), sizes):
            return f"argument {name} = {value}, {other.scalars.get(name)}"
    return None


def _follows(ours: Scalar | None, theirs: Scalar | None, sizes: tuple[int, int]) -> bool:
    """A scalar is the same, or an integer in proportion to the batch."""
    if isinstance(ours, int) and isinstance(theirs, int) and ours * sizes[1] == theirs * sizes[0]:
        return True
    return ours == theirs
