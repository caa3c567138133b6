"""Static evidence speaks for the engine only if the engine compiles with the same Triton."""

import pytest
from examples import block, evidence

from tasks.judge_static import ENGINE_TRITON, judge_static
from tasks.problem import load_problem
from tasks.records import Arm, Environment, Evidence, Outcome, Rung

CRITERIA = load_problem("kda_decode").criteria


def found(engine: str | None, after: float = 900.0) -> Evidence:
    facts = {"triton": "3.8.0"} | ({ENGINE_TRITON: engine} if engine else {})
    blocks = [block(arm, "warp_instructions", value) for arm, value in zip(Arm, (1000.0, after), strict=True)]
    gates = [block(arm, name, 0.0, part="k") for arm in Arm for name in ("spill_bytes", "registers")]
    return evidence(Rung.STATIC, *blocks, *gates, environment=Environment(facts=facts))


def test_a_kernel_that_the_engine_compiles_with_another_triton_goes_no_further() -> None:
    judged = judge_static(found("3.6.0"), CRITERIA, answers=False)
    assert judged.outcome is Outcome.INCONCLUSIVE
    assert "Triton `3.8.0`" in judged.reason
    assert "the engine has `3.6.0`" in judged.reason
    assert [f.locus.name for f in judged.findings] == ["triton of the engine"]


def test_less_work_is_still_answered_and_the_other_triton_is_told() -> None:
    judged = judge_static(found("3.6.0"), CRITERIA, answers=True)
    assert judged.outcome is Outcome.PASSED
    assert "triton of the engine" in [f.locus.name for f in judged.findings]


@pytest.mark.parametrize("engine", ["3.8.0", None])
def test_the_same_triton_or_no_engine_to_reach_lets_the_gate_hold(engine: str | None) -> None:
    judged = judge_static(found(engine), CRITERIA, answers=False)
    assert judged.outcome is None
    assert judged.findings == ()


def test_an_engine_without_triton_leaves_it_unknown() -> None:
    judged = judge_static(found("absent"), CRITERIA, answers=False)
    assert judged.outcome is None
    assert [f.status for f in judged.findings] == ["unknown"]


def test_counts_of_two_architectures_are_never_compared() -> None:
    more = [
        block(arm, "warp_instructions", value, arch="sm_100") for arm, value in zip(Arm, (10.0, 5000.0), strict=True)
    ]
    one = found("3.8.0")
    judged = judge_static(one.model_copy(update={"blocks": (*one.blocks, *more)}), CRITERIA, answers=True)
    assert judged.outcome is Outcome.PASSED
    assert "-10.0 %" in judged.reason
