"""Does the evaluator still tell right from wrong? Adversaries must be caught where and why their files say, honest
candidates must pass, and golden experiments must end as they are known to.

Nothing is mocked: the same builds, sandboxes, judges and stages as in a run, without Prefect.
"""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pydantic import Field

from serving.errors import BadInput
from tasks.build import BOTH, build_kernel
from tasks.cases import CANDIDATES, Case, load_cases
from tasks.decide import judge
from tasks.golden import GoldenResult, load_golden, run_golden
from tasks.judgement import Judgement
from tasks.numerics import measure_numerics
from tasks.problem import Problem, load_problem
from tasks.records import Arm, Outcome, Question, Record, Rung, digest
from tasks.static import measure_static

ALONE = (Arm.CANDIDATE,)
AT_A_TIME = 2
Say = Callable[[str], None]


class Failure(Record):
    name: str
    reason: str


class Adversaries(Record):
    total: int
    caught: int
    failures: tuple[Failure, ...] = ()


class Honest(Record):
    total: int
    passed: int
    failures: tuple[Failure, ...] = ()


class SelfcheckReport(Record):
    """What was judged, and what was misjudged. `quick`: a stated subset."""

    quick: bool
    adversaries: Adversaries
    honest: Honest
    golden: tuple[GoldenResult, ...] = Field(default=())

    @property
    def sound(self) -> bool:
        return (
            not self.adversaries.failures
            and not self.honest.failures
            and all(x.equal or x.not_run for x in self.golden)
        )


class Played(Record):
    """Where a case ended and why. `rung` is None if it was not built, or if nothing stopped it."""

    rung: str | None
    outcome: Outcome | None
    reason: str


def run_selfcheck(quick: bool, folder: Path = CANDIDATES, say: Say = lambda line: None) -> SelfcheckReport:
    """Judge every candidate and run every golden experiment. Raises BadInput without candidates, Broken for our faults."""
    cases = [case for case in load_cases(folder) if case.header.quick or not quick]
    problems = {name: load_problem(name) for name in {case.problem for case in cases}}

    def scope(case: Case) -> Problem:
        problem = problems[case.problem]
        return problem if case.honest else narrowed(problem, case.header.checks)

    def judged(case: Case) -> Failure | None:
        fault = misjudged(case, play(case, scope(case)))
        say(f"{'WRONG ' if fault else 'ok    '} {case.name}{f': {fault}' if fault else ''}")
        return Failure(name=case.name, reason=fault) if fault else None

    with ThreadPoolExecutor(max_workers=AT_A_TIME) as pool:
        wrong = dict(zip([case.name for case in cases], pool.map(judged, cases), strict=True))
    golden = tuple(run_golden(one, say) for one in load_golden(folder) if one.quick or not quick)
    return report_of(quick, cases, wrong, golden)


def report_of(
    quick: bool, cases: Sequence[Case], wrong: dict[str, Failure | None], golden: tuple[GoldenResult, ...]
) -> SelfcheckReport:
    names = {honest: [case.name for case in cases if case.honest is honest] for honest in (False, True)}
    failed = {honest: tuple(f for name in names[honest] if (f := wrong[name])) for honest in names}
    bad, good = (len(names[honest]) - len(failed[honest]) for honest in (False, True))
    return SelfcheckReport(
        quick=quick,
        adversaries=Adversaries(total=len(names[False]), caught=bad, failures=failed[False]),
        honest=Honest(total=len(names[True]), passed=good, failures=failed[True]),
        golden=golden,
    )


def narrowed(problem: Problem, checks: Sequence[str]) -> Problem:
    """The problem with some of its checks, and with the production shapes that they are of the kind of."""
    kept = tuple(check for check in problem.workloads.checks if check.name in checks)
    kinds = [problem.kind_of(check) for check in kept]
    timings = tuple(timing for timing in problem.workloads.timings if problem.kind_of(timing) in kinds)
    if len(kept) != len(checks) or not timings:
        raise BadInput(
            f"`{problem.name}` lacks one of the checks {list(checks)}, or a production shape of their kind",
            "correct `checks` in the header of the candidate",
        )
    workloads = problem.workloads.model_copy(update={"checks": kept, "timings": timings})
    ours = digest([problem.evaluator_digest, list(checks)])
    return problem.model_copy(update={"workloads": workloads, "evaluator_digest": ours})


def play(case: Case, problem: Problem) -> Played:
    """Take a case through build, and the rung that must catch it or, if honest, all. Raises Broken for our faults."""
    arms = BOTH if case.caught_at is Rung.STATIC else ALONE
    build = build_kernel(problem, case.candidate, digest(["selfcheck", case.name]), arms=arms)
    if build.failure is not None:
        return Played(rung="build", outcome=Outcome.REJECTED, reason=build.failure)
    last = Judgement(outcome=None, reason="it compiled")
    for rung in (Rung.STATIC, Rung.NUMERICS) if case.honest else (case.caught_at,):
        if rung is None:
            continue
        measure = measure_static if rung is Rung.STATIC else measure_numerics
        evidence = measure(problem, case.candidate, build, arms=arms)
        question = Question.LESS_WORK if rung is Rung.STATIC and not case.honest else None
        last = judge(evidence, problem.criteria, question)
        if last.outcome is not None:
            return Played(rung=rung, outcome=last.outcome, reason=last.reason)
    return Played(rung=None, outcome=None, reason=last.reason)


def misjudged(case: Case, played: Played) -> str | None:
    """What is wrong with the way in which a case ended; None if it is as its file says."""
    ended = (
        f"{played.outcome} at {played.rung}: {played.reason}" if played.rung else f"nothing stopped it: {played.reason}"
    )
    if case.honest:
        return None if played.outcome is None else f"accused falsely, {ended}"
    wanted = case.header
    if (played.rung, played.outcome) != (wanted.rung, wanted.outcome):
        return f"{ended}; expected {wanted.outcome} at {wanted.rung}"
    if not re.search(wanted.reason or "", played.reason):
        return f"{ended}; expected a reason like `{wanted.reason}`"
    return None


def summary(report: SelfcheckReport) -> str:
    """For people: totals, then everything that went wrong."""
    found, passed = report.adversaries, report.honest
    golden, missing = [x for x in report.golden if not x.not_run], [x for x in report.golden if x.not_run]
    lines = [
        f"adversaries: {found.caught} of {found.total} caught",
        f"honest candidates: {passed.passed} of {passed.total} passed",
        f"golden experiments: {sum(x.equal for x in golden)} of {len(golden)} as expected",
        *(f"  {failure.name}: {failure.reason}" for failure in (*found.failures, *passed.failures)),
        *(f"  {x.name}: expected {x.expected}, given {x.given}" for x in golden if not x.equal),
        *(f"  {x.name}: not run: {x.not_run}" for x in missing),
    ]
    if report.quick:
        lines.append("quick: a subset; without --quick all are judged")
    return "\n".join(lines)
