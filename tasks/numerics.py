"""The `numerics` rung: are the results right, in every regime? Against fp64, beside the error of IEEE fp32.

Trusted processes only: one makes inputs and answers, then the launches that each arm asked for are interpreted in a
sandbox that holds the inputs alone, from the text of the kernels. The answers are compared here. Proof of engagement:
what was interpreted has the sources, grids, constexprs and scalars of what was compiled. Whether that speaks for the
production shapes, tasks/coverage.py says.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from serving.errors import Broken
from tasks.build import BOTH, built_arms
from tasks.compiled import Compiled, LaunchSite
from tasks.coverage import uncovered
from tasks.definition import Check, Timing
from tasks.interpreted import ArmResult, Expected, interpret, make_expected
from tasks.interpreted_counts import counted_blocks
from tasks.problem import Problem
from tasks.records import Arm, Block, Build, Engagement, Evidence, KernelCandidate, Rung, digest
from tasks.twins import Array, assumed_name, differing, twin_runs

SEED_BITS = 48


def measure_numerics(
    problem: Problem, candidate: KernelCandidate, build: Build, *, arms: Sequence[Arm] = BOTH
) -> Evidence:
    """Errors per arm and regime. Raises Broken if the incumbent fails to run, or the interpreter cannot be trusted."""
    started = time.monotonic()
    seed = seed_of(candidate)
    compiled = built_arms(problem, candidate, build, arms)
    sources = {Arm.INCUMBENT: problem.incumbent, Arm.CANDIDATE: candidate}
    asked = {arm: problem.tuned(sources[arm]) for arm in arms}
    expected = _expected(asked, seed)
    with ThreadPoolExecutor(max_workers=len(BOTH)) as pool:
        jobs = {arm: pool.submit(interpret, asked[arm], compiled[arm].recording, expected[arm].inputs) for arm in arms}
        results = {arm: job.result() for arm, job in jobs.items()}
    ours = results.get(Arm.INCUMBENT)
    if ours is not None and (ours.fault or ours.unsupported):
        raise Broken(
            f"the incumbent of `{problem.name}` does not run in the interpreter: {ours.fault or ours.unsupported}",
            "repair the incumbent",
        )
    blocks: list[Block] = []
    engagement: list[Engagement] = []
    for arm, result in results.items():
        if result.fault is None and result.unsupported is None:
            blocks += blocks_of(asked[arm], arm, result, expected[arm], len(blocks))
            blocks += counted_blocks(asked[arm], arm, result.counted, len(blocks))
            engagement += _engagement(problem, arm, compiled[arm], result)
    return Evidence(
        subject=build.hypothesis_id,
        rung=Rung.NUMERICS,
        blocks=tuple(blocks),
        engagement=tuple(engagement),
        environment=build.environment,
        evaluator_digest=problem.evaluator_digest,
        seed=seed,
        wall_s=time.monotonic() - started,
        candidate_fault=_fault(problem, compiled[Arm.CANDIDATE], results[Arm.CANDIDATE])
        if Arm.CANDIDATE in results
        else None,
        unchecked=_unchecked(asked[Arm.CANDIDATE], compiled[Arm.CANDIDATE], results[Arm.CANDIDATE])
        if Arm.CANDIDATE in results
        else None,
    )


def _expected(asked: dict[Arm, Problem], seed: int) -> dict[Arm, Expected]:
    """The answers for each arm; the same ones where both have the same sizes."""
    made: list[tuple[Problem, Expected]] = []
    found: dict[Arm, Expected] = {}
    for arm, problem in asked.items():
        mine = (problem.definition, problem.workloads)
        same = [expected for other, expected in made if (other.definition, other.workloads) == mine]
        found[arm] = same[0] if same else make_expected(problem, seed)
        made.append((problem, found[arm]))
    return found


def seed_of(candidate: KernelCandidate) -> int:
    """Reproducible from the source, and changed by any edit of it: a source cannot hold answers for its own seed."""
    return int(digest([digest(candidate.source), "inputs"])[: SEED_BITS // 4], 16)


def blocks_of(problem: Problem, arm: Arm, result: ArmResult, expected: Expected, first: int) -> list[Block]:
    """Errors of each result, whose dtype is the `part`; slots that changed unasked; twins that differ."""
    blocks: list[Block] = []

    def note(observable: str, check: Check, value: float | None, part: str | None, reason: str | None = None) -> None:
        block = Block(
            arm=arm, observable=observable, unit="1", workload=check.name, value=value,
            order=first + len(blocks), part=part, reason=reason,
        )  # fmt: skip
        blocks.append(block)

    for check in problem.workloads.checks:
        known = problem.results_of(check)
        for x in known:
            ours, exact = result.arrays[f"{check.name}/{x.name}"], expected.exact[f"{check.name}/{x.name}"]
            used: Array | slice = slice(None)
            if x.slots is not None:
                used = _used(expected, check.name, x.slots, problem.definition.copies)
                changed = changed_slots(expected.first[f"{check.name}/{x.name}"], ours, used)
                note("changed_untouched_slots", check, changed, x.name)
            if x.integer:
                note(f"{x.name}_mismatches", check, float((ours[used] != exact[used]).sum()), x.dtype)
                continue
            for name, found in _on_tensor_cores(check, x.name, result):
                error = relative_error(found[used], exact[used])
                note(f"{name}_rel_error", check, error, x.dtype, None if error is not None else "not finite")
                note(f"{name}_ieee_rel_error", check, expected.ieee[check.name][x.name], x.dtype)
        for what, error in expected.drift.get(check.name, {}).items():
            note(f"{what}_drift_rel_error", check, error, check.cache)
        for twin in check.twins:
            if all(f"{run.name}/{x.name}" in result.arrays for run in twin_runs(check, twin) for x in known):
                note("differing_elements", check, differing(problem, check, twin, result.arrays), twin.label)
    return blocks


def _on_tensor_cores(check: Check, result: str, arm: ArmResult) -> list[tuple[str, Array]]:
    """One result as usual, then on each other kind of tensor cores that the check names: name in the evidence, array."""
    others = [(f"{result}_{x}", arm.arrays[f"{assumed_name(check, x)}/{result}"]) for x in check.tensor_cores]
    return [(result, arm.arrays[f"{check.name}/{result}"]), *others]


def _used(expected: Expected, check: str, index: str, copies: str | None) -> Array:
    """The slots that some step names, or copies to."""
    named = expected.first[f"{check}/{index}"].ravel()
    copied = expected.first[f"{check}/{copies}"][:, 1] if copies else named[:0]
    return np.unique(np.concatenate([named, copied[copied >= 0]]))


def relative_error(found: Array, exact: Array) -> float | None:
    """Relative Frobenius error over all steps and elements; None if anything is not finite."""
    if not np.isfinite(found).all():
        return None
    difference = np.linalg.norm((found.astype(np.float64) - exact).ravel())
    return float(difference / max(np.linalg.norm(exact.ravel()), np.finfo(np.float64).tiny))


def changed_slots(before: Array, after: Array, used: Array) -> float:
    """How many entries of the first axis that no step used are not bit-equal to what they were."""
    unused = np.setdiff1d(np.arange(len(before)), used)
    before = before.astype(after.dtype)  # codes come back as the floats of the same value
    return float(sum(before[slot].tobytes() != after[slot].tobytes() for slot in unused))


def _fault(problem: Problem, compiled: Compiled, result: ArmResult) -> str | None:
    """What the candidate did wrong, beyond wrong numbers: the code that was checked must be the code that would run."""
    if result.fault is not None or result.unsupported is not None:
        return result.fault
    for check in problem.workloads.checks:
        expected, seen = _sites(compiled, check), result.sites.get(check.name, ())
        if expected != seen:
            return (
                f"it launches other kernels when interpreted than when compiled: at {check.name} `{_describe(seen)}` "
                f"instead of `{_describe(expected)}`"
            )
    return None


def _unchecked(problem: Problem, compiled: Compiled, result: ArmResult) -> str | None:
    """What the results say nothing about, if anything."""
    if result.unsupported is not None:
        return f"the Triton interpreter cannot run it: {result.unsupported}"
    return uncovered(problem, compiled)


def _sites(compiled: Compiled, workload: Timing) -> tuple[LaunchSite, ...]:
    return tuple(launch.site for launch in compiled.workloads[workload.name])


def _engagement(problem: Problem, arm: Arm, compiled: Compiled, result: ArmResult) -> list[Engagement]:
    return [
        Engagement(
            arm=arm,
            what=f"launches at {check.name}, compiled and interpreted",
            expected=_describe(_sites(compiled, check)),
            seen=_describe(result.sites.get(check.name, ())),
        )
        for check in problem.workloads.checks
    ]


def _describe(sites: tuple[LaunchSite, ...]) -> str:
    """Kernel and grid of each launch for the reader, and a digest of everything."""
    if not sites:
        return "no launch"
    shown = " ".join(f"{x.kernel}{list(x.grid)}" for x in sites)
    return f"{shown} {digest([x.model_dump(mode='json') for x in sites])[:16]}"
