"""The interval holds at any time, whatever the noise, because the order of each pair is drawn at random."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.sequential import bounds, exceeds, log_evidence, robust_scale

Array = NDArray[np.float64]
PAIRS, RUNS, ALPHA = 80, 1500, 0.05


def slots(kind: str, rng: np.random.Generator) -> Array:
    """[RUNS, 2 * PAIRS] values of a machine that does nothing new, in log units."""
    shape = (RUNS, 2 * PAIRS)
    match kind:
        case "normal":
            return rng.standard_normal(shape)
        case "heavy tails":
            return rng.standard_t(2.0, shape)
        case "two modes":
            return 0.3 * rng.standard_normal(shape) + rng.choice([0.0, 3.0], p=[0.8, 0.2], size=shape)
        case "memory":
            noise = rng.standard_normal(shape)
            for i in range(1, shape[1]):
                noise[:, i] = 0.5 * noise[:, i - 1] + 0.75**0.5 * noise[:, i]
            return noise
        case "drift":
            return rng.standard_normal(shape) + np.linspace(0, 8, shape[1])
    raise AssertionError(kind)


def paired(kind: str, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    values, order = slots(kind, rng), rng.choice([-1.0, 1.0], size=(RUNS, PAIRS))
    changes: Array = (values[:, 1::2] - values[:, 0::2]) * order
    return changes


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "two modes", "memory", "drift"])
def test_an_interval_that_is_looked_at_after_every_pair_keeps_its_promise(kind: str) -> None:
    changes = paired(kind)
    scale = robust_scale(changes[0])
    ever_wrong = [
        max(log_evidence(x, 0.0, scale).max(), log_evidence(-x, 0.0, scale).max()) >= np.log(2 / ALPHA) for x in changes
    ]
    assert np.mean(ever_wrong) <= ALPHA


def test_a_fixed_order_with_drift_would_break_the_promise_so_the_draw_matters() -> None:
    rng = np.random.default_rng(1)
    values = slots("drift", rng)
    fixed = values[:, 1::2] - values[:, 0::2] + 0.3  # the second slot always belongs to the candidate
    assert np.mean([log_evidence(x, 0.0, 1.0).max() >= np.log(1 / ALPHA) for x in fixed]) > ALPHA


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=40),
    st.floats(0.01, 2),
    st.floats(-0.5, 0.5),
    st.sampled_from([0.01, 0.05]),
)
def test_bounds_hold_their_estimate_and_move_with_the_data(
    x: list[float], scale: float, shift: float, alpha: float
) -> None:
    here, there = bounds(x, scale, alpha), bounds(np.asarray(x) + shift, scale, alpha)
    assert (here.low is None) == (here.high is None)
    if here.low is not None and here.high is not None:
        assert here.low <= here.estimate <= here.high
        assert there.low == pytest.approx(here.low + shift, abs=1e-6)
    assert there.estimate == pytest.approx(here.estimate + shift, abs=1e-6)


def test_few_pairs_decide_a_large_effect_and_none_decide_nothing() -> None:
    assert bounds([-0.5] * 4, 0.05, ALPHA).high is None
    found = bounds([-0.5] * 10, 0.05, ALPHA)
    assert found.high is not None
    assert found.high < -0.3
    assert not exceeds([], 0.0, 0.1, ALPHA)


def test_one_outlier_does_not_decide() -> None:
    quiet = list(np.random.default_rng(2).normal(0, 0.02, 30))
    assert not exceeds([*quiet, 100.0], 0.0, 0.02, 0.025)
    moved = bounds([*quiet, 100.0], 0.02, ALPHA).estimate - bounds(quiet, 0.02, ALPHA).estimate
    assert abs(moved) < 0.01


def test_a_scale_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="scale"):
        bounds([0.1], 0.0, ALPHA)
