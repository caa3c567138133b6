"""Right results pass in every regime, wrong ones show where, and code that was not checked is not believed."""

from collections.abc import Callable

import pytest
from kernel_sources import (
    COMPUTE_WRONG,
    LIBDEVICE,
    LOOKS_FOR_THE_INTERPRETER,
    NOT_COVERED,
    ODD_BUT_HONEST,
    ONE_PROGRAM_FOR_ALL,
    OTHER_AT_PRODUCTION,
    RUN_WRONG,
    candidate,
    catalogue,
)

from serving.errors import Broken
from tasks import numerics
from tasks.build import build_kernel
from tasks.decide import judge
from tasks.interpreted import Expected, make_expected
from tasks.numerics import measure_numerics, relative_error, seed_of
from tasks.problem import Problem, load_problem
from tasks.records import Arm, Evidence, KernelCandidate, Outcome, digest

pytestmark = pytest.mark.usefixtures("shared_builds")
ALONE = (Arm.CANDIDATE,)
DRAWN: dict[str, Expected] = {}
RESULTS = ("out_rel_error", "state_rel_error")


def measure(problem: Problem, source: KernelCandidate, arms: tuple[Arm, ...] = ALONE) -> Evidence:
    build = build_kernel(problem, source, digest("a hypothesis"), arms=arms)
    assert build.failure is None
    return measure_numerics(problem, source, build, arms=arms)


def misses(evidence: Evidence, problem: Problem, arm: Arm = Arm.CANDIDATE) -> set[str]:
    """Regimes in which a result is outside its limit."""
    limits = problem.criteria
    found = set()
    for block in evidence.blocks:
        if block.arm is arm and block.observable in RESULTS:
            narrow = block.part == "bfloat16"
            limit = limits.limit("numerics.bf16_max_rel_error" if narrow else "numerics.fp32_max_rel_error")
            if block.value is None or block.value > limit:
                found.add(block.workload)
    return found


@pytest.mark.parametrize("name", ["reciprocal", "hoist_gate"])
def test_incumbent_and_right_candidates_are_right_in_every_regime(name: str) -> None:
    problem = load_problem("kda_decode")
    evidence = measure(problem, catalogue(name), (Arm.INCUMBENT, Arm.CANDIDATE))
    assert evidence.candidate_fault is None
    assert evidence.unchecked is None
    assert {block.workload for block in evidence.blocks} == {check.name for check in problem.workloads.checks}
    assert not misses(evidence, problem, Arm.INCUMBENT)
    assert not misses(evidence, problem)
    assert all(block.value == 0 for block in evidence.blocks if block.observable == "changed_untouched_slots")
    assert len(evidence.engagement) == 2 * len(problem.workloads.checks)
    assert all(proof.proved for proof in evidence.engagement)


def test_a_clamped_gate_is_right_only_where_both_forms_saturate() -> None:
    problem = load_problem("kda_decode")
    wrong = misses(measure(problem, catalogue("clamp_gate")), problem)
    assert {check.name for check in problem.workloads.checks} - wrong == {
        "strong_decay_fp32",
        "unbounded_gate_fp32",
        "unbounded_slow_decay_bf16",
    }


@pytest.fixture
def one_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """One draw of inputs for all sources of a problem: where the seed is not the point, it saves a process a test."""

    def once(problem: Problem, seed: int) -> Expected:
        if problem.evaluator_digest not in DRAWN:
            DRAWN[problem.evaluator_digest] = make_expected(problem, seed)
        return DRAWN[problem.evaluator_digest]

    monkeypatch.setattr(numerics, "make_expected", once)


@pytest.mark.usefixtures("one_draw")
@pytest.mark.parametrize("name", COMPUTE_WRONG)
def test_wrong_numbers_are_outside_the_limit(make_problem: Callable[..., Problem], name: str) -> None:
    problem = make_problem(checks=("default_fp32", "small_keys_fp32"))
    evidence = measure(problem, candidate(COMPUTE_WRONG[name]))
    assert evidence.candidate_fault is None
    assert misses(evidence, problem)


def test_a_result_that_is_not_finite_has_no_value_but_a_reason(tiny: Problem) -> None:
    evidence = measure(tiny, candidate(COMPUTE_WRONG["writes nothing"]))
    (out,) = [block for block in evidence.blocks if block.observable == "out_rel_error"]
    assert (out.value, out.reason) == (None, "not finite")


@pytest.mark.usefixtures("one_draw")
@pytest.mark.parametrize("name", RUN_WRONG)
def test_a_candidate_that_misbehaves_when_run_is_refused_with_its_fault(tiny: Problem, name: str) -> None:
    source, words = RUN_WRONG[name]
    assert words in str(measure(tiny, candidate(source)).candidate_fault)


@pytest.mark.usefixtures("one_draw")
@pytest.mark.parametrize("name", LOOKS_FOR_THE_INTERPRETER)
def test_a_candidate_that_looks_for_the_interpreter_is_judged_by_what_it_compiles(tiny: Problem, name: str) -> None:
    judgement = judge(measure(tiny, candidate(LOOKS_FOR_THE_INTERPRETER[name])), tiny.criteria)
    assert judgement.outcome is Outcome.REJECTED
    assert "numerics: wrong results" in judgement.reason


@pytest.mark.usefixtures("one_draw")
def test_programs_run_in_no_order_so_that_one_cannot_wait_for_another(covered: Problem) -> None:
    assert misses(measure(covered, candidate(ONE_PROGRAM_FOR_ALL)), covered)


@pytest.mark.usefixtures("one_draw")
@pytest.mark.parametrize("name", ODD_BUT_HONEST)
def test_honest_code_in_an_odd_style_is_right(tiny: Problem, name: str) -> None:
    evidence = measure(tiny, candidate(ODD_BUT_HONEST[name]))
    assert evidence.candidate_fault is None
    assert not misses(evidence, tiny)


@pytest.fixture(scope="session")
def covered(make_problem: Callable[..., Problem]) -> Problem:
    """Its production shapes have 8 heads, and so has one of its checks."""
    return make_problem(checks=("default_fp32", "tp8_bf16"))


@pytest.mark.usefixtures("one_draw")
@pytest.mark.parametrize("name", OTHER_AT_PRODUCTION)
def test_less_work_at_the_head_counts_of_production_is_not_believed(covered: Problem, name: str) -> None:
    evidence = measure(covered, candidate(OTHER_AT_PRODUCTION[name]))
    assert "tp8_bf16" in misses(evidence, covered)
    assert judge(evidence, covered.criteria).outcome is Outcome.REJECTED


@pytest.mark.usefixtures("one_draw")
@pytest.mark.parametrize("name", NOT_COVERED)
def test_a_production_shape_that_no_check_speaks_for_ends_inconclusive_with_its_name(
    covered: Problem, name: str
) -> None:
    source, words = NOT_COVERED[name]
    judgement = judge(measure(covered, candidate(source)), covered.criteria)
    assert judgement.outcome is Outcome.INCONCLUSIVE
    assert "results at tp8_b8 are covered by no check" in judgement.reason
    assert words in judgement.reason


def test_a_kernel_that_only_the_interpreter_cannot_run_ends_inconclusive(tiny: Problem) -> None:
    judgement = judge(measure(tiny, candidate(LIBDEVICE)), tiny.criteria)
    assert judgement.outcome is Outcome.INCONCLUSIVE
    assert "the Triton interpreter cannot run it: " in judgement.reason
    assert "libdevice.exp" in judgement.reason


def test_a_slot_that_no_request_uses_and_that_changes_is_counted(tiny: Problem) -> None:
    everywhere = tiny.incumbent.source.replace("    tl.store(tile, memory)\n", (
        "    tl.store(tile, memory)\n"
        "    for other in range(3):\n"
        "        spare = state + (other * heads + head) * (V * K) + rows[:, None] * K + cols[None, :]\n"
        "        tl.store(spare, tl.where(other == slot, memory, 0.0))\n"
    ))  # fmt: skip
    evidence = measure(tiny, candidate(everywhere))
    (changed,) = [block for block in evidence.blocks if block.observable == "changed_untouched_slots"]
    assert changed.value == 2


@pytest.mark.usefixtures("one_draw")
def test_a_result_that_depends_on_the_place_in_the_batch_or_on_the_tiles_is_not_bit_equal(
    make_problem: Callable[..., Problem],
) -> None:
    problem = make_problem(checks=("default_fp32", "default_bf16"), twins=True)
    placed = problem.incumbent.source.replace("beta = 1.0", "beta = (1.0 + 1e-7 * (request + BV // 64))")
    evidence = measure(problem, candidate(placed))
    assert not misses(evidence, problem)
    differing = {b.part: b.value for b in evidence.blocks if b.observable == "differing_elements"}
    assert differing["permute B"]
    assert differing["BV=128"]
    assert differing["BV=16"] == differing["split H"] == 0
    judgement = judge(evidence, problem.criteria)
    assert judgement.outcome is Outcome.REJECTED
    assert judgement.criterion is not None
    assert judgement.criterion.key == "numerics.max_differing_elements"


def test_a_run_without_the_options_of_a_twin_is_not_asked_for_them(make_problem: Callable[..., Problem]) -> None:
    problem = make_problem(twins=True)
    fixed = problem.incumbent.source.replace("*, BV=32, num_warps=1", "*, num_warps=1").replace("BV=BV", "BV=32")
    fixed = fixed.replace("V // BV", "V // 32")
    evidence = measure(problem, candidate(fixed))
    assert evidence.candidate_fault is None
    assert [b.part for b in evidence.blocks if b.observable == "differing_elements"] == ["split H"]


def test_seeds_are_repeatable_and_follow_the_source(tiny: Problem) -> None:
    assert seed_of(catalogue("reciprocal")) == seed_of(catalogue("reciprocal"))
    assert seed_of(catalogue("reciprocal")) != seed_of(tiny.incumbent)
    first, again, other = (make_expected(tiny, seed).first["default_fp32/q"] for seed in (1, 1, 2))
    assert (first == again).all()
    assert not (first == other).any()


def test_a_reference_that_fails_is_our_fault(tiny: Problem) -> None:
    with pytest.raises(Broken, match="reference of `kda_decode` failed"):
        make_expected(tiny.model_copy(update={"reference": "raise ValueError('no')"}), 1)


def test_an_incumbent_that_fails_when_run_is_our_fault(tiny: Problem) -> None:
    source, _ = RUN_WRONG["reads outside of its buffers"]
    broken = tiny.model_copy(update={"incumbent": candidate(source)})
    with pytest.raises(Broken, match="the incumbent of `kda_decode` does not run"):
        measure(broken, catalogue("reciprocal"), (Arm.INCUMBENT, Arm.CANDIDATE))


def test_the_relative_error_is_the_frobenius_norm_of_the_difference_over_that_of_the_exact_result() -> None:
    numpy = pytest.importorskip("numpy")
    exact = numpy.array([[3.0, 0.0], [0.0, 4.0]])
    assert relative_error(numpy.add(exact, [[0.0, 0.5], [0.0, 0.0]]).astype("float32"), exact) == pytest.approx(0.1)
    assert relative_error(numpy.full((2, 2), numpy.inf, "float32"), exact) is None
