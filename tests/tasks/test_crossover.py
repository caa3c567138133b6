"""Arms that cannot run side by side swap places; place and period cancel."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.crossover import Period, crossover_ratios, restart_time_s
from tasks.records import Arm

INC, CAN = Arm


def one_round(effect: float, place: float, period: float, first: Arm = INC, number: int = 0) -> list[Period]:
    """Two places, the second slower by `place`, the second period by `period`, the candidate by `effect` (log units)."""
    found = []
    for name, start, slow in (("a", first, 0.0), ("b", CAN if first is INC else INC, place)):
        for when, arm in enumerate((start, CAN if start is INC else INC)):
            level = slow + when * period + (effect if arm is CAN else 0.0)
            found.append(
                Period(round=number, place=name, period=when, arm=arm, value=100 * math.exp(level), restart_s=30.0)
            )
    return found


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(-1, 1), st.sampled_from([INC, CAN]))
def test_place_and_period_cancel(effect: float, place: float, period: float, first: Arm) -> None:
    assert crossover_ratios(one_round(effect, place, period, first)) == [pytest.approx(effect, abs=1e-9)]


def test_rounds_come_in_order_and_a_broken_one_is_left_out() -> None:
    periods = (
        one_round(0.1, 0.5, 0.2, number=1) + one_round(0.3, 0.5, 0.2, number=0) + one_round(0.9, 0, 0, number=2)[:3]
    )
    assert crossover_ratios(periods) == [pytest.approx(0.3), pytest.approx(0.1)]


def test_arms_that_did_not_swap_are_no_round() -> None:
    same = [p.model_copy(update={"arm": INC if p.place == "a" else CAN}) for p in one_round(0.1, 0, 0)]
    assert crossover_ratios(same) == []


def test_restarts_are_charged() -> None:
    assert restart_time_s(one_round(0.1, 0, 0)) == 120.0
