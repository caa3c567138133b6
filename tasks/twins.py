"""Properties that hold bit for bit: a check is run again in another way, and must give the same numbers.

Requests in another order, the heads of two ranks apart, other tiles: each is a derived run on the same inputs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.definition import Check, Twin
from tasks.problem import Problem, Result
from tasks.records import Record

Array = NDArray[Any]


class Run(Record):
    """One pass over the steps of the check `of`, on some `entries` of an `axis`, with launch `options` of its own, or
    under another assumption about `tensor_cores`."""

    name: str
    of: str
    axis: str | None = None
    entries: tuple[int, ...] = ()
    options: dict[str, int] = {}
    tensor_cores: str | None = None


def runs_of(check: Check) -> tuple[Run, ...]:
    """The check itself, then what its twins need, then itself on each other kind of tensor cores."""
    twins = (run for twin in check.twins for run in twin_runs(check, twin))
    assumed = (Run(name=assumed_name(check, x), of=check.name, tensor_cores=x) for x in check.tensor_cores)
    return (Run(name=check.name, of=check.name), *twins, *assumed)


def assumed_name(check: Check, tensor_cores: str) -> str:
    return f"{check.name}~{tensor_cores}"


def twin_runs(check: Check, twin: Twin) -> tuple[Run, ...]:
    """One run; two for an axis in two halves."""
    name = f"{check.name}~{twin.label}"
    if twin.options is not None:
        return (Run(name=name, of=check.name, options=twin.options),)
    size = check.axes[twin.axis or ""]
    parts = [tuple(reversed(range(size)))]
    if twin.split is not None:
        parts = [tuple(range(size // 2)), tuple(range(size // 2, size))]
    return tuple(
        Run(name=f"{name}~{i}", of=check.name, axis=twin.axis, entries=entries) for i, entries in enumerate(parts)
    )


def shaped(check: Check, run: Run) -> Check:
    """The check with the sizes that the entries of a run leave."""
    sizes = {run.axis: len(run.entries)} if run.axis else {}
    return check.model_copy(update={"axes": {**check.axes, **sizes}})


def results_of(problem: Problem, check: Check, run: Run) -> tuple[Result, ...]:
    """The results of a run, with the sizes that its entries leave."""
    return problem.results_of(shaped(check, run))


def differing(problem: Problem, check: Check, twin: Twin, arrays: dict[str, Array]) -> float:
    """How many elements of the results are not bit-equal to those of the check."""
    return float(
        sum(
            int(
                (_bits(_taken(arrays[f"{check.name}/{x.name}"], x, run)) != _bits(arrays[f"{run.name}/{x.name}"])).sum()
            )
            for run in twin_runs(check, twin)
            for x in problem.results_of(check)
        )
    )


def _taken(array: Array, result: Result, run: Run) -> Array:
    """The part of a check's result that a run of its twin computes again."""
    if run.axis is None or run.axis not in result.axes:
        return array
    return np.take(array, run.entries, axis=result.axes.index(run.axis) + (not result.in_place))


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint32)
