"""The interpreter counts bytes and how often lines run, and a production shape takes over what its check showed."""

from collections.abc import Callable

import pytest
from kernel_sources import candidate, other_kernel

from tasks.build import build_kernel, built_arms
from tasks.coverage import alike, covering
from tasks.interpreted import counted_steps
from tasks.interpreted_counts import COUNTED_AT, line_shares
from tasks.line_axes import lines_of
from tasks.numerics import measure_numerics
from tasks.problem import Problem, load_problem
from tasks.records import Arm, Build, Evidence, KernelCandidate, digest
from tasks.static import measure_static

pytestmark = pytest.mark.usefixtures("shared_builds")
ALONE = (Arm.CANDIDATE,)
MakeProblem = Callable[..., Problem]
STORE = "    tl.store(tile, memory)\n"


def branching(condition: str) -> KernelCandidate:
    """Heavy work on the tile of state, under a condition."""
    heavy = f"    if {condition}:\n        memory = tl.exp(tl.exp(memory))\n        memory = tl.sqrt(memory)\n"
    return candidate(other_kernel(STORE, heavy + STORE))


BY_DATA = branching("tl.load(state_index + request) == tl.load(state_index)")
BY_INDEX = branching("request == 0")


@pytest.fixture(scope="module")
def covered(make_problem: MakeProblem) -> Problem:
    return make_problem(checks=("tp8_bf16",))


def interpret(problem: Problem, source: KernelCandidate) -> tuple[Build, Evidence]:
    build = build_kernel(problem, source, digest("a hypothesis"), arms=ALONE)
    assert build.failure is None
    return build, measure_numerics(problem, source, build, arms=ALONE)


def values(evidence: Evidence, observable: str, workload: str) -> dict[str | None, float | None]:
    return {
        b.part: b.value for b in evidence.blocks if (b.observable, b.workload, b.arch) == (observable, workload, None)
    }


def test_bytes_of_a_step_are_those_of_the_tensors_once_and_again_for_each_tile_that_asks(covered: Problem) -> None:
    _, evidence = interpret(covered, covered.incumbent)
    requests, heads, tiles, K, V = 2, 8, 4, 128, 128
    state = requests * heads * V * K * 4
    once = 2 * requests * heads * (V + V)  # v and out, bf16
    rows = requests * heads * (3 * K + 1) * 2 + requests * heads * (K + 1) * 4 + requests * heads * 4
    (asked,), (unique,) = (values(evidence, x, "tp8_bf16").values() for x in ("requested_bytes", "unique_bytes"))
    assert asked == 2 * state + once + tiles * rows
    assert unique is not None
    assert 0 < unique - 2 * state < asked - 2 * state
    assert unique % 16 == 0  # whole sectors, over two steps


def test_a_production_shape_moves_bytes_in_proportion_to_its_batch_and_says_where_they_were_counted(
    covered: Problem,
) -> None:
    build, evidence = interpret(covered, covered.incumbent)
    static = measure_static(covered, covered.incumbent, build, arms=ALONE, interpreted=evidence)
    (counted,) = values(evidence, "unique_bytes", "tp8_bf16").values()
    assert counted is not None
    assert values(static, "unique_bytes", "tp8_b8") == {f"{COUNTED_AT}tp8_bf16": 4 * counted}


@pytest.mark.parametrize("check", ["default_fp32", None])
def test_bytes_that_were_counted_nowhere_are_unknown(make_problem: MakeProblem, check: str | None) -> None:
    problem = make_problem(checks=("default_fp32",))
    build, evidence = interpret(problem, problem.incumbent)
    static = measure_static(problem, problem.incumbent, build, arms=ALONE, interpreted=evidence if check else None)
    (block,) = [b for b in static.blocks if (b.observable, b.workload) == ("unique_bytes", "tp8_b8")]
    assert block.value is None
    assert ("no check of whole cycles" if check else "ask `check numerics`") in str(block.reason)


def test_code_behind_a_branch_counts_as_often_as_its_lines_ran(covered: Problem) -> None:
    build, evidence = interpret(covered, BY_DATA)
    # Of the two requests of the check, the first alone has the slot of the first.
    (share,) = values(evidence, "line_share", "tp8_bf16").values()
    assert share == 0.5
    static = measure_static(covered, BY_DATA, build, arms=ALONE, interpreted=evidence)
    weighted, plain = (values(static, f"warp_instructions{x}", "tp8_b8") for x in ("", "_unweighted"))
    total, unweighted = weighted[None], plain[None]
    assert total is not None
    assert unweighted is not None
    without = measure_static(covered, BY_DATA, build, arms=ALONE)
    assert values(without, "warp_instructions", "tp8_b8")[None] == unweighted
    # 128 values a lane, with at least three special functions each; half of that is saved.
    assert 0.5 * 3 * 128 < (unweighted - total) / (4 * 8 * 8) < 0.5 * 128 * 40


def test_a_branch_that_the_index_of_a_program_decides_counts_in_full_where_the_grid_is_another(
    covered: Problem,
) -> None:
    build, evidence = interpret(covered, BY_INDEX)
    assert list(values(evidence, "line_share", "tp8_bf16").values()) == [0.5]
    compiled = built_arms(covered, BY_INDEX, build, ALONE)[Arm.CANDIDATE]
    lines = {"kda_decode": lines_of(BY_INDEX.source, "kda_decode")}
    timing = next(x for x in covered.workloads.timings if x.name == "tp8_b8")
    assert line_shares(covered, compiled, timing, Arm.CANDIDATE, lines, evidence) == {"kda_decode": {}}


def test_counts_come_from_a_check_of_whole_cycles_in_the_same_variants_where_the_covering_one_is_too_short() -> None:
    replay = load_problem("kda_replay_decode")
    build = build_kernel(replay, replay.incumbent, digest("a hypothesis"), arms=ALONE)
    compiled = built_arms(replay, replay.incumbent, build, ALONE)[Arm.CANDIDATE]
    timing = next(x for x in replay.workloads.timings if x.name == "tp1_b8")
    assert covering(replay, compiled, timing) == next(x for x in replay.workloads.checks if x.name == "tp1_bf16")
    whole = [x for x in replay.workloads.checks if counted_steps(replay, x)]
    assert [counted_steps(replay, x) % 16 for x in whole] == [0] * len(whole)
    like = alike(compiled, timing, whole)
    assert like is not None
    assert like.name == "one_cycle_bf16"
    fp32 = [x for x in whole if x.activation == "float32"]
    assert alike(compiled, timing, fp32) is None


def test_straight_line_code_keeps_its_plain_count(covered: Problem) -> None:
    build, evidence = interpret(covered, covered.incumbent)
    assert values(evidence, "line_share", "tp8_bf16") == {}
    static = measure_static(covered, covered.incumbent, build, arms=ALONE, interpreted=evidence)
    for workload in ("tp8_b1", "tp8_b8"):
        weighted, plain = (values(static, f"warp_instructions{x}", workload)[None] for x in ("", "_unweighted"))
        assert weighted == plain


def test_work_beside_a_rare_branch_counts_in_full(covered: Problem) -> None:
    body = other_kernel(STORE, "    if tl.load(q + row * K) > -1.0e30:\n" + "        memory = tl.exp(tl.exp(memory))\n"
        "        if tl.load(q + row * K) > 0.0:\n            tl.store(out + row * V, 0.0)\n"
        "        memory = tl.sqrt(memory)\n        tl.store(tile, memory)\n")  # fmt: skip
    source = candidate(body)
    build, seen = interpret(covered, source)
    evidence = measure_static(covered, source, build, arms=ALONE, interpreted=seen)
    counted, plain = (
        values(evidence, x, "tp8_b8")[None] for x in ("warp_instructions", "warp_instructions_unweighted")
    )
    assert counted is not None
    assert plain is not None
    assert 0.9 * plain < counted < plain
