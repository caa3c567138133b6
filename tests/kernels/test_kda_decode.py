"""The reference of kda_decode against a case worked by hand, another form of the maths, and its own edges."""

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tasks.hypothesis_file import load_hypothesis
from tasks.problem import KERNELS
from tasks.records import KernelCandidate, KernelTarget

FOLDER = KERNELS / "kda_decode"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", FOLDER / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def workload(**changes: object) -> dict[str, object]:
    return {"name": "w", "steps": 3, "activation": "float32", "inputs": {}, **changes}


AXES = {"B": 2, "H": 3, "K": 8, "V": 4, "slots": 5}


def step(reference: ModuleType, tensors: dict[str, Any], **scalars: float | None) -> tuple[Any, Any]:
    found = reference.step(tensors, scalars)
    return found["out"], found["state"]


@pytest.mark.parametrize(("lower_bound", "decay"), [(-5.0, math.exp(-2.5)), (None, 0.5)])
def test_one_head_worked_by_hand(reference: ModuleType, lower_bound: float | None, decay: float) -> None:
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    tensors = {
        "q": torch.tensor([[[3.0, 4.0]]]),  # normalised: 0.6, 0.8
        "k": torch.tensor([[[0.0, 2.0]]]),  # normalised: 0, 1
        "v": 7.0 * one,
        "a": torch.zeros(1, 1, 2),  # gate -5 * 1/2, or -ln 2
        "b": torch.zeros(1, 1),  # beta 1/2
        "A_log": torch.zeros(1),
        "dt_bias": torch.zeros(1, 2),
        "state": torch.tensor([[[[9.0, 9.0]]], [[[1.0, 10.0]]]]),
        "state_index": torch.tensor([1], dtype=torch.int32),
    }
    out, state = step(reference, tensors, scale=2.0, lower_bound=lower_bound)
    second = 10 * decay + 0.5 * (7 - 10 * decay)
    assert state[1].flatten().tolist() == pytest.approx([decay, second], rel=1e-6)
    assert state[0].flatten().tolist() == [9.0, 9.0]
    assert out.item() == pytest.approx(2 * (0.6 * decay + 0.8 * second), rel=1e-6)


def test_the_step_equals_the_matrix_form_of_the_delta_rule(reference: ModuleType) -> None:
    """S' = (I - beta k k^T) Diag(exp g) S + beta k v^T with S [K, V], one head at a time."""
    fixed, steps = reference.make_inputs(workload(), AXES, 1)
    now = {name: x[0].double() for name, x in steps.items()}
    out, state = step(reference, {**now, **fixed}, scale=0.5, lower_bound=-5.0)
    for i, slot in enumerate(now["state_index"].long().tolist()):
        for h in range(AXES["H"]):
            q, k = (
                now[n][i, h] / torch.linalg.vector_norm(torch.cat([now[n][i, h], torch.tensor([1e-3])])) for n in "qk"
            )
            rate = fixed["A_log"][h].double().exp()
            gate = -5.0 / (1 + torch.exp(-rate * (now["a"][i, h] + fixed["dt_bias"][h].double())))
            beta = 1 / (1 + torch.exp(-now["b"][i, h]))
            before = torch.diag(gate.exp()) @ fixed["state"][slot, h].double().T
            after = (torch.eye(8) - beta * torch.outer(k, k)) @ before + beta * torch.outer(k, now["v"][i, h])
            torch.testing.assert_close(state[slot, h], after.T, rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(out[i, h], 0.5 * q @ after, rtol=1e-10, atol=1e-12)


def test_slots_that_no_request_uses_do_not_change(reference: ModuleType) -> None:
    fixed, steps = reference.make_inputs(workload(), AXES, 2)
    _, state = step(reference, {**fixed, **{n: x[0] for n, x in steps.items()}}, scale=1.0, lower_bound=-5.0)
    used = set(steps["state_index"][0].tolist())
    assert len(used) == AXES["B"]
    for slot in set(range(AXES["slots"])) - used:
        assert torch.equal(state[slot], fixed["state"][slot].double())


def test_zero_keys_and_queries_are_finite_because_eps_is_inside_the_root(reference: ModuleType) -> None:
    fixed, steps = reference.make_inputs(workload(inputs={"q": {"std": 0.0}, "k": {"std": 0.0}}), AXES, 3)
    out, state = step(reference, {**fixed, **{n: x[0] for n, x in steps.items()}}, scale=1.0, lower_bound=-5.0)
    assert out.abs().max() == 0
    assert state.isfinite().all()


def test_requests_come_and_go_and_the_last_slot_is_never_used(reference: ModuleType) -> None:
    _, steps = reference.make_inputs(workload(steps=20), AXES, 3)
    index = steps["state_index"]
    assert index.shape == (20, AXES["B"])
    assert set(index.flatten().tolist()) == set(range(AXES["slots"] - 1))
    assert all(len(set(row)) == AXES["B"] for row in index.tolist())


def test_inputs_follow_the_seed_and_the_distributions_of_the_workload(reference: ModuleType) -> None:
    axes = {**AXES, "K": 128, "V": 128}
    _, first = reference.make_inputs(workload(inputs={"a": {"mean": -8.0}}), axes, 4)
    _, again = reference.make_inputs(workload(inputs={"a": {"mean": -8.0}}), axes, 4)
    _, other = reference.make_inputs(workload(inputs={"a": {"mean": -8.0}}), axes, 5)
    assert torch.equal(first["q"], again["q"])
    assert not torch.equal(first["q"], other["q"])
    assert first["a"].mean().item() == pytest.approx(-8.0, abs=0.2)
    assert first["a"].std().item() == pytest.approx(1.0, abs=0.1)


def test_every_regime_of_the_workloads_is_distinct_from_the_default_and_some_leave_slots_unused() -> None:
    checks = json.loads((FOLDER / "workloads.json").read_text())["checks"]
    assert {x["activation"] for x in checks} == {"float32", "bfloat16"}
    assert any(x["axes"]["slots"] > x["axes"]["B"] for x in checks)
    assert any(x.get("inputs", {}).get("a", {}).get("mean", 0) <= -8 for x in checks)
    assert any("lower_bound" in x.get("scalars", {}) for x in checks)


@pytest.mark.parametrize("path", sorted((FOLDER / "hypotheses").glob("*.yaml")), ids=lambda path: path.stem)
def test_each_hypothesis_names_a_source_that_exists(path: Path) -> None:
    asked = load_hypothesis(path)
    assert isinstance(asked.change, KernelCandidate)
    assert isinstance(asked.target, KernelTarget)
    assert asked.target.problem == "kda_decode"
