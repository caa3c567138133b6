"""Verdicts are a pure function of evidence and criteria."""

import pytest
from examples import block, build, evidence, experiment, kernel_hypothesis
from hypothesis import assume, given
from hypothesis import strategies as st

from tasks.decide import broken, decide
from tasks.judgement import Criteria
from tasks.problem import load_problem
from tasks.records import Arm, Block, Engagement, Evidence, Experiment, Outcome, Question, Rung

CRITERIA: Criteria = load_problem("kda_decode").criteria
WANTED_PCT = CRITERIA.limit("static.smallest_effect_pct")
INC, CAN = Arm


def right_results(candidate_error: float | None = 1e-7, **changes: object) -> Evidence:
    blocks = []
    for arm, error in ((INC, 1e-7), (CAN, candidate_error)):
        blocks += [
            block(arm, "out_rel_error", error, workload="slow_decay"),
            block(arm, "out_ieee_rel_error", 1e-7, workload="slow_decay"),
            block(arm, "out_rel_error", 1e-7, workload="strong_decay"),
            block(arm, "changed_untouched_slots", 0.0, workload="strong_decay"),
        ]
    return evidence(Rung.NUMERICS, *blocks, **changes)


def emitted(work: float = 80.0, changed: float = 1.0, **of_candidate: float) -> Evidence:
    """100 warp instructions for the incumbent, `work` for the candidate, at two batch sizes."""
    blocks: list[Block] = []
    for workload, size in (("B1", 1.0), ("B8", 8.0)):
        for arm, count in ((INC, 100.0), (CAN, work)):
            extra = of_candidate if arm is CAN else {}
            blocks += [
                block(arm, "warp_instructions", count * size, workload=workload, part=part) for part in (None, "k")
            ]
            blocks += [
                block(arm, "mufu", count * size / 10, workload=workload),
                block(arm, "registers", extra.get("registers", 64.0), workload=workload, part="k"),
                block(arm, "spill_bytes", extra.get("spill_bytes", 0.0), workload=workload, part="k"),
                block(arm, "wide_share", extra.get("wide_share", 0.9), workload=workload),
                block(arm, "programs", 32.0 * size, workload=workload),
            ]
        blocks.append(block(CAN, "code_changed", changed, workload=workload))
    return evidence(Rung.STATIC, *blocks)


def with_evidence(
    *found: Evidence, question: Question = Question.LESS_WORK, budget_s: float | None = None
) -> Experiment:
    view = experiment(kernel_hypothesis(question), budget_s)
    view = view.with_record(build(view.hypothesis))
    for one in found:
        view = view.with_record(one)
    return view


def outcome(view: Experiment) -> tuple[Outcome | None, str]:
    verdict = decide(view, CRITERIA)
    return (None, "") if verdict is None else (verdict.outcome, verdict.reason)


def test_there_is_no_verdict_while_gates_hold_and_rungs_are_left() -> None:
    assert decide(with_evidence(), CRITERIA) is None
    assert decide(with_evidence(right_results()), CRITERIA) is None


def test_less_work_with_right_results_passes_and_says_that_speed_was_not_run() -> None:
    verdict = decide(with_evidence(right_results(), emitted()), CRITERIA)
    assert verdict is not None
    assert verdict.outcome is Outcome.PASSED
    assert "-20.0 %" in verdict.reason
    assert "speed" in verdict.not_run
    assert verdict.decided_by is not None
    assert verdict.decided_by.key == "static.smallest_effect_pct"
    work = next(f for f in verdict.findings if f.observable == "warp_instructions")
    assert (work.incumbent, work.candidate, work.delta) == (800.0, 640.0, -160.0)


def test_wrong_results_are_rejected_with_the_regime_before_work_is_counted() -> None:
    verdict = decide(with_evidence(right_results(0.3)), CRITERIA)
    assert verdict is not None
    assert verdict.outcome is Outcome.REJECTED
    assert "slow_decay" in verdict.reason
    assert "strong_decay" not in verdict.reason
    assert verdict.findings[0].locus.name == "slow_decay"
    assert "static" in verdict.not_run


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (emitted(work=100.0, changed=0.0), "no change"),
        (emitted(work=100.0 - WANTED_PCT / 2), "smallest effect"),
        (emitted(work=120.0), "more work"),
        (emitted(spill_bytes=8.0), "spills"),
        (emitted(wide_share=0.5), "vector width"),
    ],
)
def test_what_is_no_improvement_is_rejected(found: Evidence, words: str) -> None:
    given_outcome, reason = outcome(with_evidence(right_results(), found))
    assert given_outcome is Outcome.REJECTED
    assert words in reason


def test_a_result_that_is_not_finite_is_rejected() -> None:
    given_outcome, reason = outcome(with_evidence(right_results(None)))
    assert given_outcome is Outcome.REJECTED
    assert "not finite" in reason


def test_an_incumbent_that_fails_is_our_fault() -> None:
    blocks = tuple(
        b.model_copy(update={"value": 0.5}) if b.observable == "out_rel_error" else b for b in right_results().blocks
    )
    assert outcome(with_evidence(evidence(Rung.NUMERICS, *blocks)))[0] is Outcome.BROKEN


@pytest.mark.parametrize("value", [float("1e308"), 0.0, -1.0])
def test_odd_values_are_judged_and_raise_nothing(value: float) -> None:
    assert outcome(with_evidence(right_results(value)))[0] in (None, Outcome.REJECTED)
    zero = tuple(b.model_copy(update={"value": value if b.value is not None else None}) for b in emitted().blocks)
    assert outcome(with_evidence(right_results(), evidence(Rung.STATIC, *zero)))[0] is not Outcome.PASSED


def test_without_proof_of_engagement_there_is_no_verdict_on_the_hypothesis() -> None:
    proof = Engagement(arm=CAN, what="launches", expected="kda[1]", seen="other[1]")
    assert outcome(with_evidence(right_results(engagement=(proof,))))[0] is Outcome.BROKEN
    assert outcome(with_evidence(right_results(engagement=())))[0] is Outcome.BROKEN


def test_a_fault_of_the_candidate_is_rejected_in_its_own_words() -> None:
    faulty = evidence(Rung.NUMERICS, candidate_fault="it opened a socket", engagement=())
    assert outcome(with_evidence(faulty)) == (Outcome.REJECTED, "numerics: it opened a socket")


def test_what_no_check_speaks_for_is_inconclusive_unless_results_are_wrong_where_checked() -> None:
    why = "results at B8 are covered by no check"
    assert outcome(with_evidence(right_results(unchecked=why))) == (Outcome.INCONCLUSIVE, f"numerics: {why}")
    assert outcome(with_evidence(right_results(0.3, unchecked=why)))[0] is Outcome.REJECTED
    alone = evidence(Rung.NUMERICS, unchecked="the interpreter cannot run it", engagement=())
    assert outcome(with_evidence(alone))[0] is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("whole", [right_results(), emitted()])
def test_what_was_observed_of_the_incumbent_alone_is_our_fault(whole: Evidence) -> None:
    lacking = tuple(b for b in whole.blocks if b.arm is INC or b.workload not in ("slow_decay", "B8"))
    found = (right_results(),) if whole.rung is Rung.STATIC else ()
    given_outcome, reason = outcome(with_evidence(*found, whole.model_copy(update={"blocks": lacking})))
    assert given_outcome is Outcome.BROKEN
    assert "of the incumbent alone" in reason


def test_a_rung_that_did_not_run_decides_nothing() -> None:
    no_gpu = evidence(Rung.MICROBENCH, not_run="no GPU", engagement=())
    view = with_evidence(right_results(), emitted(), no_gpu, question=Question.FASTER_KERNEL)
    verdict = decide(view, CRITERIA)
    assert verdict is not None
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.not_run["microbench"] == "no GPU"
    assert "speed" in verdict.not_run


def test_a_build_that_fails_is_rejected() -> None:
    view = experiment()
    assert outcome(view.with_record(build(view.hypothesis, "syntax error at line 3")))[0] is Outcome.REJECTED


def test_a_spent_budget_ends_inconclusive() -> None:
    given_outcome, reason = outcome(with_evidence(right_results(), budget_s=2.5))
    assert given_outcome is Outcome.INCONCLUSIVE
    assert "budget" in reason


def test_a_fault_of_ours_carries_its_reason() -> None:
    assert broken(experiment(), "ptxas is missing").reason == "ptxas is missing"


@given(st.floats(50, 150), st.floats(1e-9, 1), st.sampled_from([0.0, 8.0]))
def test_judging_again_gives_the_same_verdict_byte_for_byte(work: float, error: float, spill: float) -> None:
    assume(abs(work - (100 - WANTED_PCT)) > 1e-6)
    view = with_evidence(right_results(error), emitted(work, spill_bytes=spill))
    again = Experiment.model_validate_json(view.model_dump_json())
    first, second = decide(view, CRITERIA), decide(again, CRITERIA)
    assert first is not None
    assert second is not None
    assert first.model_dump_json() == second.model_dump_json()
    assert (first.outcome is Outcome.PASSED) == (work <= 100 - WANTED_PCT and error <= 1e-5 and spill == 0)
