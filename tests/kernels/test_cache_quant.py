"""A state in fewer bits: codes as the reference makes them, and what a format loses over a long generation."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from serving.errors import BadInput
from tasks.build import build_kernel
from tasks.decide import judge
from tasks.hypothesis_file import load_hypothesis
from tasks.numerics import measure_numerics
from tasks.problem import KERNELS, Problem, load_problem
from tasks.records import Arm, Evidence, KernelCandidate, Outcome, Question, digest

FOLDER = KERNELS / "cache_quant"
ALONE = (Arm.CANDIDATE,)
FORMATS = ("bfloat16", "int8", "float8_e4m3fn")
SCALARS = {"scale": 0.5, "lower_bound": -5.0}
SLOW = {"a": {"mean": -4.0}, "b": {"mean": -3.0}, "A_log": {"std": 0.0}}


@pytest.fixture(scope="module")
def reference(reference_of: Callable[[str], ModuleType]) -> ModuleType:
    return reference_of("cache_quant")


def workload(cache: str, **changes: object) -> dict[str, Any]:
    scalars = {**SCALARS, "cache": cache}
    return {"steps": 3, "activation": "float32", "inputs": {}, "cache": cache, "scalars": scalars, **changes}


def test_a_row_worked_by_hand_in_each_format(reference: ModuleType) -> None:
    row = torch.tensor([[0.5, -1.27, 0.004, 0.0]], dtype=torch.float64)
    codes, scale = reference.quantised(row, "int8")
    assert (codes.tolist(), scale.tolist()) == ([[50.0, -127.0, 0.0, 0.0]], [pytest.approx(0.01)])
    codes, scale = reference.quantised(row, "float8_e4m3fn")
    assert (codes.tolist(), scale.tolist()) == ([[176.0, -448.0, 1.375, 0.0]], [pytest.approx(1.27 / 448)])
    codes, scale = reference.quantised(row, "bfloat16")
    assert (codes[0, 1].item(), scale.tolist()) == (-1.2734375, [1.0])


@pytest.mark.parametrize("cache", FORMATS)
def test_an_empty_state_has_scales_of_one_and_stays_finite(reference: ModuleType, cache: str) -> None:
    codes, scale = reference.quantised(torch.zeros(2, 8), cache)
    assert codes.abs().max() == 0
    assert (scale == 1).all()


@pytest.mark.parametrize("cache", FORMATS)
def test_a_step_is_that_of_kda_decode_between_reading_and_writing_codes(
    reference: ModuleType, reference_of: Callable[[str], ModuleType], cache: str
) -> None:
    axes = {"B": 2, "H": 3, "K": 8, "V": 4, "slots": 5}
    fixed, per_step = reference.make_inputs(workload(cache), axes, 1)
    now = {**fixed, **{name: x[0] for name, x in per_step.items()}}
    found = reference.step(now, {**SCALARS, "cache": cache})
    wide = fixed["state"].double() * fixed["state_scale"].double()[..., None]
    plain = reference_of("kda_decode").step({**now, "state": wide}, SCALARS)
    torch.testing.assert_close(found["out"], plain["out"], rtol=1e-12, atol=1e-14)
    stored = found["state"] * found["state_scale"][..., None]
    step = {"bfloat16": 2**-8, "int8": 0.51 / 127, "float8_e4m3fn": 2**-4}[cache]
    peak = plain["state"].abs().amax(-1, keepdim=True)
    assert ((stored - plain["state"]).abs() <= step * peak).all()
    used = set(now["state_index"].tolist())
    for slot in set(range(5)) - used:
        assert torch.equal(found["state"][slot], fixed["state"][slot].double())


def drift(reference: ModuleType, cache: str, inputs: Any) -> dict[str, float]:
    return dict(reference.drift(workload(cache, inputs=inputs, drift_steps=256), {"K": 128, "V": 128}, 5))


def test_fewer_bits_drift_further_and_slow_decay_shows_it(reference: ModuleType) -> None:
    slow = [drift(reference, cache, SLOW)["state"] for cache in FORMATS]
    fast = [drift(reference, cache, {"A_log": {"std": 0.0}})["state"] for cache in FORMATS]
    assert slow == sorted(slow)
    assert slow[1] > 3 * slow[0]
    assert all(a > 4 * b for a, b in zip(slow, fast, strict=True))


def test_an_outlier_channel_costs_a_scale_per_token_more_than_bf16(reference: ModuleType) -> None:
    _, draw = reference.drawer({"inputs": {}}, 3)
    bf16, int8, e4m3 = (reference.kv_drift(draw, 256, 128, cache) for cache in FORMATS)
    assert bf16 < 0.2 * min(int8, e4m3)


def test_writing_the_state_back_less_often_drifts_less(reference: ModuleType) -> None:
    _, draw = reference.drawer({"inputs": SLOW}, 3)
    tokens = {name: x.double() for name, x in reference.tokens_of(draw, 256, 1, 1, 64, 64).items()}
    fixed = {"A_log": torch.zeros(1).double(), "dt_bias": torch.zeros(1, 64).double()}
    state = torch.zeros(1, 1, 64, 64).double()
    each, flush = (reference.state_drift(tokens, fixed, state, SCALARS, "int8", every) for every in (1, 8))
    assert flush < 0.6 * each


def measure(problem: Problem, source: str, cache: str) -> Evidence:
    candidate = KernelCandidate(
        source_name=f"{source}.py", source=(FOLDER / f"{source}.py").read_text(), launch={"cache": cache}
    )
    build = build_kernel(problem, candidate, digest([source, cache]), arms=ALONE)
    assert build.failure is None
    return measure_numerics(problem, candidate, build, arms=ALONE)


@pytest.fixture
def slow(some_checks: Callable[..., Problem], shared_builds: object) -> Problem:
    return some_checks("cache_quant", ("slow_decay", "tp8_bf16"), ("tp8_b1",))


@pytest.mark.parametrize("cache", FORMATS)
def test_a_format_is_judged_by_its_drift_though_its_kernel_is_right(slow: Problem, cache: str) -> None:
    found = judge(measure(slow, "incumbent", cache), slow.criteria, Question.SAME_RESULTS)
    if cache == "bfloat16":
        assert found.outcome is Outcome.PASSED
        return
    assert found.outcome is Outcome.REJECTED
    assert found.criterion is not None
    assert found.criterion.key == "numerics.drift_max_rel_error"
    (finding,) = found.findings
    assert finding.observable == "state_drift_rel_error"
    assert f"`{cache}` itself loses this" in finding.implies


def test_codes_that_are_cut_off_instead_of_rounded_are_wrong(
    some_checks: Callable[..., Problem], shared_builds: object
) -> None:
    problem = some_checks("cache_quant", ("slowest_decay_int8", "tp8_bf16"), ("tp8_b1",))
    evidence = measure(problem, "truncates", "int8")
    assert judge(evidence, problem.criteria, Question.SAME_RESULTS).outcome is Outcome.REJECTED
    codes = {
        b.workload: b.value or 0.0 for b in evidence.blocks if (b.observable, b.part) == ("state_rel_error", "int8")
    }
    assert codes["slowest_decay_int8"] > problem.criteria.limit("numerics.coded_max_rel_error")


def test_an_arm_chooses_the_dtype_of_the_cache_and_no_other() -> None:
    problem = load_problem("cache_quant")
    asked = load_hypothesis(FOLDER / "hypotheses" / "int8_state.yaml").change
    assert isinstance(asked, KernelCandidate)
    tuned = problem.tuned(asked)
    assert {x.cache for x in (*tuned.workloads.checks, *tuned.workloads.timings)} == {"int8"}
    assert problem.options_of(asked) == {}
    with pytest.raises(BadInput, match="int4"):
        problem.tuned(asked.model_copy(update={"launch": {"cache": "int4"}}))
