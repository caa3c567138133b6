"""Inputs of a CPU call: new at each, in the same place; outputs that hold nothing of use."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.cpu_inputs import Fresh, must_be_unchanged, poison, stored, values_of
from tasks.native import NativeFault

ARGUMENTS: list[dict[str, Any]] = [
    {"name": "x", "shape": (2, 4), "dtype": "bfloat16", "role": "step"},
    {"name": "at", "shape": (2,), "dtype": "int32", "role": "step"},
    {"name": "weight", "shape": (4,), "dtype": "float32", "role": "fixed"},
    {"name": "state", "shape": (3, 4), "dtype": "float32", "role": "in_place"},
    {"name": "out", "shape": (2, 4), "dtype": "bfloat16", "role": "out"},
    {"name": "scale", "value": 1.0},
]


@given(st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=1, max_size=20))
def test_bf16_rounds_as_torch_does_and_comes_back(numbers: list[float]) -> None:
    values = np.array(numbers, np.float32)
    exact = torch.from_numpy(values.copy()).to(torch.bfloat16)
    found = stored(values, "bfloat16")
    np.testing.assert_array_equal(values_of(found, "bfloat16"), exact.float().numpy())


@pytest.fixture
def fresh() -> Fresh:
    rng = np.random.default_rng(0)
    drawn = {
        "x": rng.standard_normal((6, 2, 4), np.float32),
        "at": np.stack([rng.permutation(3)[:2] for _ in range(6)]).astype(np.int32),
        "weight": rng.standard_normal(4, np.float32),
        "state": rng.standard_normal((3, 4), np.float32),
    }
    return Fresh(ARGUMENTS, drawn)


def views() -> dict[str, Any]:
    return {x["name"]: stored(np.zeros(x["shape"]), x["dtype"]) for x in ARGUMENTS if "shape" in x}


def test_every_call_and_every_batch_has_values_of_its_own(fresh: Fresh) -> None:
    memory, rng, steps, weights = views(), np.random.default_rng(1), set(), set()
    for _ in range(3):
        fresh.begin(memory, rng)
        weights.add(memory["weight"].tobytes())
        for _ in range(4):
            fresh.step(memory, rng)
            steps.add(memory["x"].tobytes())
            assert len(set(memory["at"].tolist())) == 2
    assert len(weights) == 3
    assert len(steps) > 8


def test_equal_seeds_give_both_arms_equal_inputs(fresh: Fresh) -> None:
    one, other = views(), views()
    for memory in (one, other):
        rng = np.random.default_rng([3, 4])
        fresh.begin(memory, rng)
        fresh.step(memory, rng)
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_an_input_that_changes_is_named(fresh: Fresh) -> None:
    memory, rng = views(), np.random.default_rng(1)
    given = fresh.step(memory, rng)
    must_be_unchanged(memory, given)
    memory["at"][0] += 1
    with pytest.raises(NativeFault, match="the input `at` was changed"):
        must_be_unchanged(memory, given)


def test_poison_is_not_always_the_same(fresh: Fresh) -> None:
    memory, seen = views(), []
    for turn in range(3):
        poison(memory, ARGUMENTS, turn)
        seen.append(float(values_of(memory["out"], "bfloat16")[0, 0]))
    assert np.isnan(seen[0])
    assert len({str(x) for x in seen}) == 3
