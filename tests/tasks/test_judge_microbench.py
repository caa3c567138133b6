"""Faster in the production mix and slower on no shape, by paired CPU times; raw blocks in, a judgement out."""

import random

import pytest

from tasks.criteria import Criteria, CriteriaFile
from tasks.judge_microbench import MIX, TIME, WORKING_SET, is_decided, judge_microbench
from tasks.noise import Noise
from tasks.problem import load_problem
from tasks.records import Arm, Block, Environment, Evidence, Outcome, Rung, digest

FACTS = {"device": "cpu", "cpu": "example", "cores": "2", "cache_l1": "32K", "cache_l2": "1024K", "cache_l3": "32768K"}
SHAPES = ("small", "large")


@pytest.fixture(scope="module")
def criteria() -> Criteria[CriteriaFile]:
    return load_problem("kda_cpu").criteria


def noise(scale: float) -> Noise:
    changes = dict.fromkeys((*SHAPES, MIX), (-scale, scale, -scale, scale, 0.0))
    return Noise(rung=Rung.MICROBENCH, workload="kda_cpu", facts={}, seed=0, changes=changes, wall_s=1.0)


def evidence(ratios: dict[str, float], pairs: int = 40, spread: float = 0.02, trend: float = 0.0) -> Evidence:
    rng, blocks = random.Random(1), list[Block]()
    sizes = {"small": 50_000.0, "large": 50_000_000.0}
    for name, size in sizes.items():
        blocks += [
            Block(arm=arm, observable=WORKING_SET, unit="bytes", workload=name, value=size, order=0) for arm in Arm
        ]
    for pair in range(pairs):
        for workload, ratio in ratios.items():
            for arm in rng.sample(list(Arm), 2):
                value = (
                    100 * (ratio if arm is Arm.CANDIDATE else 1.0) * (1 + trend * pair) * rng.lognormvariate(0, spread)
                )
                blocks.append(
                    Block(arm=arm, observable=TIME, unit="µs", workload=workload, value=value, order=len(blocks))
                )
    return Evidence(
        subject=digest("h"),
        rung=Rung.MICROBENCH,
        blocks=tuple(blocks),
        environment=Environment(facts=FACTS),
        evaluator_digest=digest("e"),
        gate=digest("numerics"),
        noise=noise(0.03),
    )


@pytest.mark.parametrize(
    ("ratios", "outcome", "reason"),
    [
        ({"small": 0.5, "large": 0.6, MIX: 0.55}, Outcome.PASSED, "faster in the production mix"),
        ({"small": 1.0, "large": 0.99, MIX: 0.995}, Outcome.REJECTED, "not faster in the production mix"),
        ({"small": 0.5, "large": 1.2, MIX: 0.7}, Outcome.REJECTED, "slower at large"),
        ({"small": 0.95, "large": 0.95, MIX: 0.95}, Outcome.INCONCLUSIVE, "do not decide"),
    ],
)
def test_the_mix_decides_and_every_shape_can_veto(
    ratios: dict[str, float], outcome: Outcome, reason: str, criteria: Criteria[CriteriaFile]
) -> None:
    found = judge_microbench(evidence(ratios), criteria, answers=True)
    assert found.outcome is outcome
    assert reason in found.reason


def test_a_gate_that_holds_is_no_verdict(criteria: Criteria[CriteriaFile]) -> None:
    assert judge_microbench(evidence({"small": 0.5, "large": 0.5, MIX: 0.5}), criteria, answers=False).outcome is None


def test_it_is_decided_as_soon_as_the_pairs_force_a_verdict(criteria: Criteria[CriteriaFile]) -> None:
    found = [evidence({"small": 0.2, "large": 0.2, MIX: 0.2}, pairs) for pairs in (2, 40)]
    assert [is_decided(x.blocks, criteria, x.noise) for x in found] == [False, True]


def test_a_win_on_a_machine_that_drifts_is_no_win(criteria: Criteria[CriteriaFile]) -> None:
    found = judge_microbench(evidence({"small": 0.5, "large": 0.5, MIX: 0.5}, trend=0.02), criteria, answers=True)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "drift" in found.reason


def test_findings_say_what_was_timed_where_and_whether_it_fits_a_cache(criteria: Criteria[CriteriaFile]) -> None:
    findings = judge_microbench(evidence({"small": 0.5, "large": 0.5, MIX: 0.5}), criteria, answers=True).findings
    told = {x.locus.name: x.implies for x in findings}
    assert "fits the L2 of 1024K" in told["small"]
    assert "fits no cache" in told["large"]
    assert all("never evidence about a GPU" in x for x in told.values())
