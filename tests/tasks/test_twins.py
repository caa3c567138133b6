"""A twin is a run on the same inputs in another way; only what it computes again is compared, bit for bit."""

import numpy as np
import pytest
from pydantic import ValidationError

from tasks.definition import Twin
from tasks.problem import Problem, load_problem
from tasks.twins import Array, differing, results_of, runs_of, twin_runs


@pytest.fixture(scope="module")
def problem() -> Problem:
    return load_problem("kda_decode")


def check_of(problem: Problem, name: str, **changes: object):  # type: ignore[no-untyped-def]
    (check,) = [x for x in problem.workloads.checks if x.name == name]
    return check.model_copy(update=changes)


def test_a_twin_is_one_of_three_things() -> None:
    assert Twin(permute="B").label == "permute B"
    assert Twin(options={"BV": 16}).label == "BV=16"
    for wrong in ({}, {"permute": "B", "split": "H"}):
        with pytest.raises(ValidationError, match="a twin has one of"):
            Twin.model_validate(wrong)


def test_a_split_is_two_runs_that_cover_the_axis_and_a_permutation_is_one(problem: Problem) -> None:
    check = check_of(problem, "odd_sizes_fp32")
    first, second = twin_runs(check, Twin(split="H"))
    assert (*first.entries, *second.entries) == (0, 1, 2, 3, 4)
    (turned,) = twin_runs(check, Twin(permute="B"))
    assert turned.entries == (2, 1, 0)
    assert [x.shape for x in results_of(problem, check, first) if x.name == "out"] == [(3, 2, 128)]


def arrays_of(problem: Problem, check) -> dict[str, Array]:  # type: ignore[no-untyped-def]
    """Results of a computation that does not mind how it is run."""
    drawn = {x.name: np.random.default_rng(1).normal(size=x.shape if x.in_place else (check.steps, *x.shape))
             for x in problem.results_of(check)}  # fmt: skip
    found = {}
    for run in runs_of(check):
        for x in problem.results_of(check):
            whole = drawn[x.name].astype(np.float32)
            if run.axis in x.axes:
                whole = np.take(whole, run.entries, axis=x.axes.index(run.axis) + (not x.in_place))
            found[f"{run.name}/{x.name}"] = whole
    return found


@pytest.mark.parametrize("twin", [Twin(permute="B"), Twin(split="H"), Twin(options={"BV": 16})])
def test_equal_runs_differ_in_nothing_and_one_flipped_bit_is_counted(problem: Problem, twin: Twin) -> None:
    check = check_of(problem, "odd_sizes_fp32", twins=(twin,))
    arrays = arrays_of(problem, check)
    assert differing(problem, check, twin, arrays) == 0
    run = twin_runs(check, twin)[-1]
    for name in ("out", "state"):
        arrays[f"{run.name}/{name}"].view(np.uint32).flat[7] ^= 1
    assert differing(problem, check, twin, arrays) == 2
