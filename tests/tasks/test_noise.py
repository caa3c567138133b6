"""Noise is measured first, and says what can be seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.noise import Noise, noise_key, planned_pairs, smallest_detectable_pct
from tasks.records import Rung


def noise(**changes: object) -> Noise:
    fields: dict[str, object] = {
        "rung": Rung.SERVICE,
        "workload": "chat",
        "facts": {"cpu": "x"},
        "seed": 1,
        "changes": {"ttft_ms": (0.05, -0.05, 0.1, 0.0)},
        "wall_s": 9.0,
    }
    return Noise.model_validate(fields | changes)


def test_a_key_names_rung_workload_and_environment_and_not_the_values() -> None:
    assert noise().id == noise(changes={}, wall_s=1.0, seed=2).id == noise_key(Rung.SERVICE, "chat", {"cpu": "x"})
    assert noise().id != noise(facts={"cpu": "y"}).id
    assert noise().id != noise(workload="documents").id


def test_a_larger_effect_needs_fewer_pairs_and_too_small_a_one_has_no_plan() -> None:
    large, small = planned_pairs(20, 0.05, 0.05), planned_pairs(5, 0.05, 0.05)
    assert large is not None
    assert small is not None
    assert large < small
    assert planned_pairs(0.1, 0.05, 0.05) is None
    assert planned_pairs(10, 0.05, 0.05, limit_pct=10) is None


@given(st.integers(8, 64), st.floats(0.005, 0.3))
def test_what_can_be_detected_is_what_the_plan_says(pairs: int, scale: float) -> None:
    effect = smallest_detectable_pct(pairs, scale, 0.05)
    assert effect is not None
    needed = planned_pairs(effect * 1.001, scale, 0.05)
    assert needed is not None
    assert needed <= pairs + 1


def test_too_few_pairs_detect_nothing() -> None:
    assert smallest_detectable_pct(4, 0.05, 0.05) is None


def test_an_observable_that_was_not_observed_has_no_scale_and_silence_has_a_floor() -> None:
    assert noise().scale("e2e_ms") is None
    assert noise(changes={"ttft_ms": (0.1,) * 3}).scale("ttft_ms") is None
    assert noise(changes={"ttft_ms": (0.1,) * 5}).scale("ttft_ms") == pytest.approx(1e-3)
    assert noise(changes={"ttft_ms": (0.1, -0.1, 0.1, -0.1)}).scale("ttft_ms") == pytest.approx(0.148, abs=1e-3)
