"""One rung alone, on a kernel source: its gates, without a comparison. What `infra-agent check` runs.

A time on CPU is always one beside the incumbent's.
"""

from collections.abc import Iterator
from pathlib import Path

from serving.documents import read_text
from serving.errors import BadInput
from tasks.build import build_kernel
from tasks.cpu_bench import measure_cpu_bench
from tasks.cpu_numerics import measure_cpu_numerics
from tasks.decide import judge
from tasks.judge_microbench import is_decided
from tasks.judgement import Judgement
from tasks.microbench import measure_microbench
from tasks.numerics import measure_numerics
from tasks.problem import Problem, load_problem
from tasks.records import Arm, Build, Check, Evidence, KernelCandidate, Outcome, Rung, digest
from tasks.static import measure_static

ALONE = (Arm.CANDIDATE,)
CHECKS = (Rung.STATIC, Rung.NUMERICS, Rung.MICROBENCH)


def check(rung: Rung, target: Path) -> Check:
    """Build `target`, a candidate in the folder of a kernel problem, and run one rung on it.

    Raises `BadInput` for a rung or target that cannot be checked alone, `Broken` for faults of ours.
    """
    if rung not in CHECKS:
        raise BadInput(
            f"`{rung}` cannot be checked alone", f"check one of {', '.join(CHECKS)}; `run` visits the others"
        )
    problem = _problem_of(target)
    if rung is Rung.STATIC and problem.definition.runs_on == "cpu":
        raise BadInput(
            f"`{rung}` has nothing to say of `{target}`, which runs on CPU", "check `numerics` or `microbench`"
        )
    source = read_text(target)
    candidate = KernelCandidate(source_name=target.name, source=source)
    build = build_kernel(problem, candidate, digest(["check", problem.name, digest(source)]), arms=ALONE)
    if build.failure is not None:
        return _check(
            rung, target, Judgement.rejected(f"does not build: {build.failure}"), _unbuilt(rung, build, problem)
        )
    for evidence in _measured(rung, problem, candidate, build):
        judgement = judge(evidence, problem.criteria)
        if judgement.outcome is not None:
            break
    return _check(rung, target, judgement, evidence)


def _problem_of(target: Path) -> Problem:
    if target.suffix != ".py":
        raise BadInput(f"`{target}` is not a kernel source", "name a Python file that defines `run`")
    folder = target.resolve().parent
    if not (folder / "definition.yaml").is_file():
        raise BadInput(
            f"`{target}` is not in the folder of a kernel problem", "put it beside the definition.yaml that it answers"
        )
    return load_problem(folder)


def _measured(rung: Rung, problem: Problem, candidate: KernelCandidate, build: Build) -> Iterator[Evidence]:
    """Evidence of the rung, after that of its gate where it is timed: on CPU, against the incumbent."""
    match rung, problem.definition.runs_on:
        case Rung.STATIC, _:
            yield measure_static(problem, candidate, build, arms=ALONE)
        case Rung.NUMERICS, "gpu":
            yield measure_numerics(problem, candidate, build, arms=ALONE)
        case Rung.NUMERICS, _:
            yield measure_cpu_numerics(problem, candidate, build, arms=ALONE)
        case _, "gpu":
            yield measure_microbench(problem, candidate, build, gate=None)
        case _:
            gate = measure_cpu_numerics(problem, candidate, build)
            yield gate
            yield measure_cpu_bench(
                problem, candidate, build, gate=gate.id, enough=lambda x, noise: is_decided(x, problem.criteria, noise)
            )


def _unbuilt(rung: Rung, build: Build, problem: Problem) -> Evidence:
    return Evidence(
        subject=build.hypothesis_id,
        rung=rung,
        environment=build.environment,
        evaluator_digest=problem.evaluator_digest,
        wall_s=build.wall_s,
        candidate_fault=f"does not build: {build.failure}",
    )


def _check(rung: Rung, target: Path, judgement: Judgement, evidence: Evidence) -> Check:
    return Check(
        rung=rung,
        target=str(target),
        outcome=judgement.outcome or Outcome.PASSED,
        reason=judgement.reason,
        evidence=evidence,
        findings=judgement.findings,
    )
