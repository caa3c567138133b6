"""The `numerics` rung of problems that run on CPU: the candidate's own code on every regime, against fp64.

It runs as it will be timed: in the same process, by the same calls (tasks/native.py). The exact results are never there.
Proof of engagement: what the process loaded, reported before the first line of it ran.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from serving.errors import Broken
from tasks.build import BOTH
from tasks.cpu_build import built_cpu_arms
from tasks.cpu_inputs import must_be_unchanged, new_seed, poison, stored, values_of
from tasks.definition import Check
from tasks.interpreted import ArmResult, Expected, make_expected
from tasks.native import Native, NativeFault, NativeSource, native
from tasks.numerics import blocks_of
from tasks.problem import Problem
from tasks.records import Arm, Block, Build, Engagement, Evidence, KernelCandidate, Rung
from tasks.twins import Array, Run, runs_of


def measure_cpu_numerics(
    problem: Problem, candidate: KernelCandidate, build: Build, *, arms: Sequence[Arm] = BOTH
) -> Evidence:
    """Errors per arm and regime. Raises Broken if the incumbent fails to run."""
    started, seed = time.monotonic(), new_seed()
    made = built_cpu_arms(problem, candidate, build, arms)
    expected = make_expected(problem, seed)
    with ThreadPoolExecutor(max_workers=len(made)) as pool:
        jobs = {arm: pool.submit(compute, problem, source, expected) for arm, source in made.items()}
        computed = {arm: job.result() for arm, job in jobs.items()}
    faults = {arm: x.result.fault for arm, x in computed.items()}
    if faults.get(Arm.INCUMBENT) is not None:
        raise Broken(f"the incumbent of `{problem.name}` does not run: {faults[Arm.INCUMBENT]}", "repair the incumbent")
    blocks: list[Block] = []
    for arm, x in computed.items():
        if x.result.fault is None:
            blocks += blocks_of(problem, arm, x.result, expected, len(blocks))
    return Evidence(
        subject=build.hypothesis_id,
        rung=Rung.NUMERICS,
        blocks=tuple(blocks),
        engagement=tuple(engaged(arm, made[arm], x.loaded) for arm, x in computed.items() if x.loaded),
        environment=build.environment,
        evaluator_digest=problem.evaluator_digest,
        seed=seed,
        wall_s=time.monotonic() - started,
        candidate_fault=faults.get(Arm.CANDIDATE),
    )


@dataclass(frozen=True)
class Computed:
    """Results of one arm or its fault, and what its process loaded, if it came to that."""

    result: ArmResult
    loaded: list[str]


def compute(problem: Problem, source: NativeSource, expected: Expected) -> Computed:
    """Every run of every check, call by call. What the candidate does wrong is the fault; raises Broken for ours."""
    runs = [(check, run) for check in problem.workloads.checks for run in runs_of(check) if not run.options]
    calls = [arguments_of(problem, check, run) for check, run in runs]
    arrays: dict[str, Array] = {}
    try:
        with native(source, calls, problem.criteria.values.limits) as process:
            for index, (check, run) in enumerate(runs):
                given = {x["name"]: _given(expected.first, run, x) for x in calls[index] if _is_input(x)}
                found = _run(process, index, calls[index], given, check.steps)
                arrays |= {f"{run.name}/{name}": x for name, x in found.items()}
            return Computed(ArmResult(None, arrays, {}), process.loaded)
    except NativeFault as fault:
        return Computed(ArmResult(str(fault), {}, {}), [])


def engaged(arm: Arm, made: NativeSource, loaded: list[str]) -> Engagement:
    """What the process loaded, against what it should have."""
    expected, seen = (" ".join(x[:16] for x in digests) for digests in (made.digests, loaded))
    return Engagement(arm=arm, what="source and library loaded", expected=expected, seen=seen or "nothing")


def arguments_of(problem: Problem, check: Check, run: Run) -> list[dict[str, Any]]:
    """The arguments of a run: shapes are those that the entries of its axis leave."""
    sizes = {run.axis: len(run.entries)} if run.axis else {}
    return problem.arguments_of(check.model_copy(update={"axes": {**check.axes, **sizes}}))


def _is_input(x: dict[str, Any]) -> bool:
    return x.get("role") in ("step", "fixed", "in_place")


def _given(first: dict[str, Array], run: Run, x: dict[str, Any]) -> Array:
    """An input as it lies in memory, with a leading axis of steps if it has new values at each."""
    values = first[f"{run.of}/{x['name']}"]
    if run.axis is not None and run.axis in x["axes"]:
        values = np.take(values, run.entries, axis=x["axes"].index(run.axis) + (x["role"] == "step"))
    return stored(values, x["dtype"])


def _run(
    process: Native, index: int, arguments: list[dict[str, Any]], given: dict[str, Array], steps: int
) -> dict[str, Array]:
    """All steps: each output with a leading axis of steps, and the last of what changes in place."""
    views, roles = process.calls[index], {x["name"]: x.get("role") for x in arguments}
    dtypes = {x["name"]: x["dtype"] for x in arguments if "shape" in x}
    outputs: dict[str, list[Array]] = {name: [] for name, role in roles.items() if role == "out"}
    for name in given:
        if roles[name] != "step":
            views[name][...] = given[name]
    for step in range(steps):
        now = {name: x[step] if roles[name] == "step" else x for name, x in given.items() if roles[name] != "in_place"}
        for name, x in now.items():
            if roles[name] == "step":
                views[name][...] = x
        poison(views, arguments, step)
        process.call(index)
        must_be_unchanged(views, now)
        for name, collected in outputs.items():
            collected.append(values_of(views[name], dtypes[name]))
    kept = {name: values_of(views[name], dtypes[name]) for name, role in roles.items() if role == "in_place"}
    return {name: np.stack(x) for name, x in outputs.items()} | kept
