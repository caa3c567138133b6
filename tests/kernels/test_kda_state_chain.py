"""Context-parallel KDA: plain tf32 is wrong at every split and worse with length, tf32x3 repairs it, the split is exact."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from tasks.build import build_kernel
from tasks.decide import judge
from tasks.judge_numerics import judge_numerics
from tasks.judgement import Judgement
from tasks.numerics import measure_numerics
from tasks.problem import KERNELS, Problem, load_problem
from tasks.records import Arm, Evidence, KernelCandidate, Outcome, Question, digest

FOLDER = KERNELS / "kda_state_chain"
ALONE = (Arm.CANDIDATE,)
SPLITS = (1, 2, 4, 8)
REGIMES = ("strong_decay", "slow_decay", "slow_decay_small_beta", "slowest_decay")
GROWTH = ("strong_decay_1k_cp8", "strong_decay_8k_cp8", "slowest_decay_1k_cp8", "slowest_decay_8k_cp8")
OTHERS = ("slowest_decay_8k_cp1", *(f"slowest_decay_1k_cp{ranks}" for ranks in SPLITS[:3]))


@pytest.fixture(scope="module")
def reference(reference_of: Callable[[str], ModuleType]) -> ModuleType:
    return reference_of("kda_state_chain")


def chunks(reference: ModuleType, decay: float = 0.025, beta: float = 0.5, **axes: int) -> dict[str, Any]:
    workload = {"inputs": {"decay": {"mean": decay}, "beta": {"mean": beta}}}
    fixed, per_step = reference.make_inputs(workload, {"H": 2, "C": 8, "K": 16, "V": 8, **axes}, 1)
    assert per_step == {}
    return dict(fixed)


def test_two_chunks_worked_by_hand(reference: ModuleType) -> None:
    M = torch.tensor([[[[0.5, 0.0], [0.0, 1.0]], [[2.0, 1.0], [0.0, 3.0]]]])
    B = torch.tensor([[[[1.0], [2.0]], [[10.0], [20.0]]]])
    assert reference.step({"M": M, "B": B}, {"ranks": 1})["state"].tolist() == [[[2 + 2 + 10.0], [6 + 20.0]]]


def test_a_chunk_is_its_64_tokens_one_after_the_other(reference: ModuleType) -> None:
    generator = torch.Generator().manual_seed(0)
    k, v, S = (torch.randn(*shape, generator=generator).double() for shape in ((64, 8), (64, 4), (8, 4)))
    k /= k.norm(dim=-1, keepdim=True)
    beta, decay = torch.rand(64, generator=generator).double(), 0.1 * torch.rand(64, 8, generator=generator).double()
    M, B = reference.transition(k, v, beta, decay)
    want = S
    for t in range(64):
        want = (1 - decay[t])[:, None] * want
        want = want + beta[t] * torch.outer(k[t], v[t] - k[t] @ want)
    torch.testing.assert_close(M @ S + B, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("ranks", SPLITS)
def test_merged_ranks_are_the_whole_chain_in_exact_arithmetic(reference: ModuleType, ranks: int) -> None:
    given = chunks(reference)
    M, B = (given[x].double().unflatten(1, (ranks, -1)) for x in "MB")
    merged = torch.zeros_like(B[:, 0, 0])
    for rank in range(ranks):
        composed, state = torch.eye(16, dtype=torch.float64).expand(2, 16, 16), torch.zeros_like(merged)
        for chunk in range(M.shape[2]):
            composed, state = M[:, rank, chunk] @ composed, M[:, rank, chunk] @ state + B[:, rank, chunk]
        merged = composed @ merged + state
    torch.testing.assert_close(merged, reference.step(given, {"ranks": ranks})["state"], rtol=1e-11, atol=1e-12)


def test_slower_decay_and_smaller_beta_keep_more_of_the_state(reference: ModuleType) -> None:
    kept = [
        chunks(reference, decay, beta, K=128, V=128, H=1, C=1)["M"].diagonal(dim1=-2, dim2=-1).mean().item()
        for decay, beta in ((0.025, 0.5), (2.5e-4, 0.5), (2.5e-4, 0.05), (1e-5, 0.005))
    ]
    assert kept == sorted(kept)
    assert kept[-1] > 0.99


def test_the_checks_hold_every_regime_at_every_split_and_both_ends_of_the_accumulator() -> None:
    checks = {x.name: x for x in load_problem("kda_state_chain").workloads.checks}
    assert {f"{regime}_1k_cp{ranks}" for regime in REGIMES for ranks in SPLITS} <= set(checks)
    assert any(x.tensor_cores == ("toward_zero",) for x in checks.values())


def test_the_candidates_are_the_incumbent_in_another_precision() -> None:
    def kernel(name: str) -> str:
        return (FOLDER / f"{name}.py").read_text().split("import torch\n", 1)[1]

    for precision in ("ieee", "tf32", "tf32x3"):
        assert kernel(precision) == kernel("incumbent").replace('constexpr("ieee")', f'constexpr("{precision}")')


def measure(problem: Problem, name: str) -> Evidence:
    source = KernelCandidate(source_name=f"{name}.py", source=(FOLDER / f"{name}.py").read_text())
    build = build_kernel(problem, source, digest(name), arms=ALONE)
    assert build.failure is None
    return measure_numerics(problem, source, build, arms=ALONE)


def errors(evidence: Evidence) -> dict[str, float | None]:
    return {b.workload: b.value for b in evidence.blocks if b.observable == "state_rel_error"}


@pytest.fixture
def growing(some_checks: Callable[..., Problem], shared_builds: object) -> Problem:
    return some_checks("kda_state_chain", (*GROWTH, *OTHERS), ("tp8_8k_cp8",))


def judged(problem: Problem, evidence: Evidence) -> Judgement:
    return judge(evidence, problem.criteria, Question.SAME_RESULTS)


def test_plain_tf32_is_wrong_at_every_split_and_grows_with_length_only_where_decay_is_slow(growing: Problem) -> None:
    evidence = measure(growing, "tf32")
    verdict = judged(growing, evidence)
    assert verdict.outcome is Outcome.REJECTED
    assert {finding.locus.name for finding in verdict.findings} == {*GROWTH, *OTHERS}
    strong, strong_long, slow, slow_long = (errors(evidence)[name] or 0.0 for name in GROWTH)
    assert slow_long > 4 * slow
    assert strong_long < 1.5 * strong
    assert slow_long > 8e-3 > strong_long  # upstream's limit sees the fault in one of these regimes only


def test_tf32x3_is_right_and_the_verdict_shows_what_toward_zero_would_cost(growing: Problem) -> None:
    verdict = judged(growing, measure(growing, "tf32x3"))
    assert verdict.outcome is Outcome.PASSED
    assert verdict.criterion is not None
    assert verdict.criterion.key == "numerics.toward_zero_max_rel_error"
    assert verdict.findings[0].observable == "state_toward_zero_rel_error"


def test_the_worse_end_of_the_accumulator_is_judged_too(growing: Problem) -> None:
    evidence = measure(growing, "tf32x3")
    far = [
        x.model_copy(update={"value": 1e-3}) if x.observable == "state_toward_zero_rel_error" else x
        for x in evidence.blocks
    ]
    worse = judge_numerics(evidence.model_copy(update={"blocks": tuple(far)}), growing.criteria, answers=True)
    assert worse.outcome is Outcome.REJECTED
