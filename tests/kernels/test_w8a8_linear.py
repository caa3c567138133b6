"""The W8A8 linear layer: exact int8 sums, scaled once; a second rounding and a sum in fp16 are told from it."""

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from tasks.build import build_kernel
from tasks.decide import judge
from tasks.numerics import measure_numerics
from tasks.problem import KERNELS, Problem
from tasks.records import Arm, KernelCandidate, Outcome, Question, digest

FOLDER = KERNELS / "w8a8_linear"


@pytest.fixture(scope="module")
def reference(reference_of: Callable[[str], ModuleType]) -> ModuleType:
    return reference_of("w8a8_linear")


def drawn(reference: ModuleType, inputs: dict[str, Any]) -> dict[str, Any]:
    workload = {"steps": 2, "inputs": inputs}
    fixed, per_step = reference.make_inputs(workload, {"M": 3, "N": 5, "K": 64}, 1)
    return {**fixed, **{name: x[0] for name, x in per_step.items()}}


def test_two_tokens_and_two_channels_worked_by_hand(reference: ModuleType) -> None:
    tensors = {
        "x": torch.tensor([[1, 2, 3], [-127, 0, 1]], dtype=torch.int8),
        "w": torch.tensor([[1, 1, 1], [127, 0, -1]], dtype=torch.int8),
        "x_scale": torch.tensor([0.5, 2.0]),
        "w_scale": torch.tensor([10.0, 1.0]),
    }
    out = reference.step(tensors, {})["out"]
    assert out.tolist() == [[6 * 5.0, 124 * 0.5], [-126 * 20.0, -16130 * 2.0]]


def test_the_layer_is_the_product_of_dequantised_operands(reference: ModuleType) -> None:
    now = drawn(reference, {})
    wide = {name: now[name].double() * now[f"{name}_scale"].double()[:, None] for name in ("x", "w")}
    torch.testing.assert_close(reference.step(now, {})["out"], wide["x"] @ wide["w"].T, rtol=1e-12, atol=1e-12)


def test_operands_are_codes_that_symmetric_quantisation_leaves(reference: ModuleType) -> None:
    now = drawn(reference, {"x": {"std": 1000.0}})
    assert now["x"].dtype == now["w"].dtype == torch.int8
    assert now["x"].min() == -127
    assert now["x"].max() == 127
    assert (now["x_scale"] > 0).all()


def test_every_depth_of_production_is_checked_with_every_number_of_tokens() -> None:
    workloads = json.loads((FOLDER / "workloads.json").read_text())
    checked = {(x["axes"]["M"], x["axes"]["K"]) for x in workloads["checks"] if x["activation"] == "bfloat16"}
    assert {(x["axes"]["M"], x["axes"]["K"]) for x in workloads["timings"]} <= checked


@pytest.fixture
def small(some_checks: Callable[..., Problem], shared_builds: object) -> Problem:
    return some_checks("w8a8_linear", ("m1_k1024", "odd_sizes", "same_sign", "small_operands"), ("kda_o_tp8_m1",))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("unmasked_k", set()),
        ("rounds_twice", {"odd_sizes", "small_operands"}),
        ("fp16_sum", {"same_sign"}),
    ],
)
def test_candidates_are_wrong_where_their_arithmetic_is(small: Problem, name: str, wrong: set[str]) -> None:
    source = KernelCandidate(source_name=f"{name}.py", source=(FOLDER / f"{name}.py").read_text())
    build = build_kernel(small, source, digest(name), arms=(Arm.CANDIDATE,))
    verdict = judge(
        measure_numerics(small, source, build, arms=(Arm.CANDIDATE,)), small.criteria, Question.SAME_RESULTS
    )
    assert verdict.outcome is (Outcome.REJECTED if wrong else Outcome.PASSED)
    assert wrong <= {finding.locus.name for finding in verdict.findings}
