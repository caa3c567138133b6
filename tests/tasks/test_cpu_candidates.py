"""Every adversary of tests/candidates/cpu is caught on the rung that it names, for the reason that it names."""

import re
from collections.abc import Callable

import pytest
from cpu_candidates import Played, played

from tasks.build import build_kernel
from tasks.cpu_bench import tracks_of
from tasks.cpu_build import prepare
from tasks.cpu_numerics import compute
from tasks.cpu_pairs import LaneFault, Track, WrongResult, calibrate, run_pair, started
from tasks.interpreted import Expected, make_expected
from tasks.judge_numerics import judge_numerics
from tasks.native import NativeSource
from tasks.numerics import blocks_of
from tasks.problem import Problem
from tasks.records import Arm, Environment, Evidence, Outcome, Rung, digest

pytestmark = pytest.mark.usefixtures("shared_builds")
PLAYED = played()
MakeProblem = Callable[..., Problem]
SLOWER = 1.5


@pytest.fixture(scope="module")
def problem(make_cpu_problem: MakeProblem) -> Problem:
    return make_cpu_problem(wall_s=10, cpu_s=20)


@pytest.fixture(scope="module")
def expected(small_cpu: Problem, sandbox: str) -> Expected:
    return make_expected(small_cpu, 7)


@pytest.fixture(scope="module")
def tracks(small_cpu: Problem, sandbox: str) -> list[Track]:
    return tracks_of(small_cpu, 7)


@pytest.mark.parametrize("case", [x for x in PLAYED if x.rung == "build"], ids=lambda x: x.name)
def test_what_does_not_build_is_named(case: Played, problem: Problem) -> None:
    build = build_kernel(problem, case.candidate, digest("a hypothesis"), arms=(Arm.CANDIDATE,))
    assert build.artifact_digest is None
    assert re.search(case.reason, build.failure or "")


@pytest.mark.parametrize("case", [x for x in PLAYED if x.rung == "numerics"], ids=lambda x: x.name)
def test_what_is_wrong_or_forbidden_is_caught_by_numerics(case: Played, problem: Problem, expected: Expected) -> None:
    assert re.search(case.reason, checked(problem, expected, prepare(problem, case.candidate)))


@pytest.mark.parametrize("case", [x for x in PLAYED if x.rung == "microbench"], ids=lambda x: x.name)
def test_what_only_shows_while_it_is_timed_is_caught_there(
    case: Played, problem: Problem, expected: Expected, tracks: list[Track]
) -> None:
    made = prepare(problem, case.candidate)
    assert checked(problem, expected, made) == "", "another rung catches it, so its file should say that"
    assert re.search(case.reason, timed(problem, tracks, made))


@pytest.mark.parametrize("case", [x for x in PLAYED if x.rung == "none"], ids=lambda x: x.name)
def test_honest_candidates_in_odd_styles_are_accused_of_nothing(
    case: Played, problem: Problem, expected: Expected, tracks: list[Track]
) -> None:
    made = prepare(problem, case.candidate)
    assert checked(problem, expected, made) == ""
    assert timed(problem, tracks, made) in ("", "slower")


def checked(problem: Problem, expected: Expected, made: NativeSource) -> str:
    """Why numerics rejects it, or nothing."""
    result = compute(problem, made, expected).result
    if result.fault is not None:
        return result.fault
    evidence = Evidence(
        subject=digest("a hypothesis"),
        rung=Rung.NUMERICS,
        blocks=tuple(blocks_of(problem, Arm.CANDIDATE, result, expected, 0)),
        environment=Environment(facts={}),
        evaluator_digest=problem.evaluator_digest,
    )
    judgement = judge_numerics(evidence, problem.criteria, answers=True)
    return "" if judgement.outcome is Outcome.PASSED else judgement.reason


def timed(problem: Problem, tracks: list[Track], made: NativeSource) -> str:
    """What a pair of it against the incumbent shows, or nothing."""
    arms = {Arm.INCUMBENT: prepare(problem, problem.incumbent), Arm.CANDIDATE: made}
    try:
        with started(arms, tracks, problem.criteria.values.limits) as lanes:
            calibrate(lanes, tracks[0], [1])
            (spent,) = run_pair(lanes, tracks, [2]).values()
    except (LaneFault, WrongResult) as fault:
        return str(fault)
    return "slower" if spent[Arm.CANDIDATE] > SLOWER * spent[Arm.INCUMBENT] else ""
