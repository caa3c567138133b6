"""Paired blocks become an interval, and an interval is held against a limit."""

import math

import numpy as np
import pytest
from examples import block
from hypothesis import given
from hypothesis import strategies as st

from tasks.paired import SCALE_PAIRS, against_gain, against_veto, compare, log_ratios, mean_of, percent
from tasks.records import Arm, Block, Interval, Outcome


def pairs(effect_pct: float, noise: float, count: int, seed: int = 0) -> tuple[Block, ...]:
    """`count` pairs in random order; the candidate's values are `effect_pct` higher."""
    rng, found = np.random.default_rng(seed), []
    for pair in range(count):
        arms = list(Arm) if rng.random() < 0.5 else list(reversed(Arm))
        for place, arm in enumerate(arms):
            level = 100 * (1 + effect_pct / 100 if arm is Arm.CANDIDATE else 1)
            value = level * math.exp(rng.normal(0, noise))
            found.append(block(arm, "ttft_ms", value, order=2 * pair + place))
    return tuple(found)


def interval(low: float, high: float) -> Interval:
    middle = (low + high) / 2
    return Interval(
        observable="x",
        unit="%",
        workload="w",
        estimate=middle,
        low=low,
        high=high,
        confidence=0.95,
        blocks=9,
        method="m",
    )


def test_pairs_are_matched_by_order_whichever_arm_goes_first() -> None:
    blocks = [
        block(Arm.CANDIDATE, "t", 20.0, order=3), block(Arm.INCUMBENT, "t", 10.0, order=2),
        block(Arm.INCUMBENT, "t", 5.0, order=0), block(Arm.CANDIDATE, "t", 5.0, order=1),
    ]  # fmt: skip
    assert log_ratios(tuple(blocks), "t", "w") == [0.0, math.log(2)]


def test_a_pair_with_an_unknown_side_is_left_out() -> None:
    blocks = (block(Arm.INCUMBENT, "t", None, order=0), block(Arm.CANDIDATE, "t", 5.0, order=1))
    assert log_ratios(blocks, "t", "w") == []


@pytest.mark.parametrize(("ours", "theirs"), [(1e308, 5e-324), (5e-324, 1e308), (0.0, 1.0), (1.0, 0.0)])
def test_a_pair_whose_ratio_is_no_positive_finite_number_is_left_out(ours: float, theirs: float) -> None:
    blocks = (block(Arm.INCUMBENT, "t", ours, order=0), block(Arm.CANDIDATE, "t", theirs, order=1))
    assert log_ratios(blocks, "t", "w") == []


def test_extreme_values_give_finite_means_and_intervals() -> None:
    sides = ((Arm.INCUMBENT, 1e-150), (Arm.CANDIDATE, 1.7e158))
    blocks = tuple(block(arm, "t", value, order=2 * k + i) for k in range(9) for i, (arm, value) in enumerate(sides))
    found = compare(blocks, "t", "w", 0.05, scale=1.0).interval
    assert found is not None
    assert math.isfinite(found.high)
    large = tuple(block(Arm.INCUMBENT, "t", 1.7e308, order=k) for k in range(4))
    assert mean_of(large, "t", Arm.INCUMBENT) == pytest.approx(1.7e308)


def test_the_interval_holds_the_effect_and_narrows() -> None:
    few, many = (compare(pairs(10, 0.02, n), "ttft_ms", "w", 0.05).interval for n in (12, 60))
    assert few is not None
    assert many is not None
    assert few.low <= 10 <= few.high
    assert many.low <= 10 <= many.high
    assert many.high - many.low < few.high - few.low


def test_without_an_earlier_scale_the_first_pairs_give_it_and_do_not_count() -> None:
    blocks = pairs(10, 0.02, 20)
    own, given_scale = compare(blocks, "ttft_ms", "w", 0.05), compare(blocks, "ttft_ms", "w", 0.05, scale=0.03)
    assert own.interval is not None
    assert given_scale.interval is not None
    assert own.interval.blocks == given_scale.interval.blocks - SCALE_PAIRS


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_pairs_give_a_reason_and_no_interval(count: int) -> None:
    found = compare(pairs(10, 0.02, count), "ttft_ms", "w", 0.05)
    assert found.interval is None
    assert found.reason


@pytest.mark.parametrize(
    ("low", "high", "gain", "veto"),
    [
        (-20.0, -12.0, Outcome.PASSED, Outcome.PASSED),
        (-20.0, -5.0, Outcome.INCONCLUSIVE, Outcome.PASSED),
        (-5.0, 2.0, Outcome.REJECTED, Outcome.PASSED),
        (-5.0, 8.0, Outcome.REJECTED, Outcome.INCONCLUSIVE),
        (6.0, 9.0, Outcome.REJECTED, Outcome.REJECTED),
    ],
)
def test_a_limit_is_met_only_by_the_whole_interval(low: float, high: float, gain: Outcome, veto: Outcome) -> None:
    assert against_gain(interval(low, high), 10, lower_is_better=True) is gain
    assert against_veto(interval(low, high), 5, lower_is_better=True) is veto
    assert against_gain(interval(-high, -low), 10, lower_is_better=False) is gain
    assert against_veto(interval(-high, -low), 5, lower_is_better=False) is veto


def test_no_interval_decides_nothing() -> None:
    assert against_gain(None, 1, lower_is_better=True) is Outcome.INCONCLUSIVE
    assert against_veto(None, 1, lower_is_better=True) is Outcome.INCONCLUSIVE


@given(st.floats(-0.9, 3))
def test_percent_turns_a_log_ratio_back(ratio: float) -> None:
    assert percent(math.log1p(ratio)) == pytest.approx(100 * ratio, abs=1e-9)
