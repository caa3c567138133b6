"""Fewer bytes are claimed from counts of both arms over whole cycles, and only where the results are right."""

import pytest
from examples import block, evidence

from tasks.decide import judge
from tasks.judge_bytes import KEY
from tasks.problem import load_problem
from tasks.records import Arm, Block, Evidence, Outcome, Question, Rung

CRITERIA = load_problem("kda_replay_decode").criteria
INC, CAN = Arm


def moved(arm: Arm, amount: float, check: str = "two_cycles_fp32", kernel: str = "step") -> Block:
    return block(arm, "unique_bytes", amount).model_copy(update={"workload": check, "part": kernel, "unit": "B"})


def right(error: float = 1e-7) -> list[Block]:
    return [block(arm, "out_rel_error", error) for arm in Arm]


def judged(*blocks: Block, error: float = 1e-7):  # type: ignore[no-untyped-def]
    found: Evidence = evidence(Rung.NUMERICS, *right(error), *blocks)
    return judge(found, CRITERIA, Question.FEWER_BYTES)


def test_fewer_bytes_pass_with_the_figures_and_the_criterion() -> None:
    judgement = judged(moved(INC, 150_000), moved(CAN, 90_000), moved(CAN, 10_000, kernel="prologue"))
    assert judgement.outcome is Outcome.PASSED
    assert judgement.criterion is not None
    assert judgement.criterion.key == KEY
    assert "-33.3 %" in judgement.reason
    (finding, *_) = judgement.findings
    assert (finding.incumbent, finding.candidate, finding.delta) == (150_000, 100_000, -50_000)
    assert "1.50 to 1" in finding.implies
    assert "not known" in finding.implies


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([(100, 99)], "less than the smallest effect of interest, 2 %"),
        ([(100, 101)], "more bytes at check0: +1.0 %"),
        ([(100, 50), (100, 120)], "more bytes at check1: +20.0 %"),
    ],
)
def test_too_little_or_more_at_one_check_is_rejected(counts: list[tuple[float, float]], words: str) -> None:
    blocks = [moved(arm, x, f"check{i}") for i, pair in enumerate(counts) for arm, x in zip(Arm, pair, strict=True)]
    judgement = judged(*blocks)
    assert judgement.outcome is Outcome.REJECTED
    assert words in judgement.reason


def test_wrong_results_are_rejected_whatever_they_save() -> None:
    found = evidence(
        Rung.NUMERICS,
        block(INC, "out_rel_error", 1e-7),
        block(CAN, "out_rel_error", 1e-2),
        moved(INC, 2),
        moved(CAN, 1),
    )
    judgement = judge(found, CRITERIA, Question.FEWER_BYTES)
    assert judgement.outcome is Outcome.REJECTED
    assert "out_rel_error" in judgement.reason


def test_without_a_count_of_both_arms_nothing_is_claimed() -> None:
    assert judged().outcome is Outcome.INCONCLUSIVE


def test_criteria_that_say_nothing_of_bytes_claim_nothing() -> None:
    silent = CRITERIA.model_copy(update={"values": CRITERIA.values.model_copy(update={"bytes": None})})
    found = evidence(Rung.NUMERICS, *right(), moved(INC, 2), moved(CAN, 1))
    judgement = judge(found, silent, Question.FEWER_BYTES)
    assert judgement.outcome is Outcome.INCONCLUSIVE
    assert KEY in judgement.reason


def test_as_a_gate_the_same_evidence_only_has_to_be_right() -> None:
    assert judge(evidence(Rung.NUMERICS, *right(), moved(INC, 1), moved(CAN, 2)), CRITERIA).outcome is None


def test_a_twin_a_branch_or_whole_cycles_of_one_arm_alone_are_no_missing_observation() -> None:
    alone = [block(INC, name, 0.0) for name in ("differing_elements", "line_share", "unique_bytes")]
    assert judge(evidence(Rung.NUMERICS, *right(), *alone), CRITERIA).outcome is None
