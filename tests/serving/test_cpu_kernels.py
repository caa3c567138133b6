"""The torch kernels of serving/cpu against fp64, written out again here from the formulas of the model."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from serving.engine_env import CPU_STAND_INS

KERNELS = CPU_STAND_INS / "sgl_kernel"
INCUMBENT = Path(__file__).parents[2] / "kernels" / "kda_cpu" / "incumbent.py"
H, K, V, SLOTS = 2, 16, 12, 5
LENGTHS = (1, 7, 0, 33)


def loaded(file: Path) -> ModuleType:
    """By path: only an engine process has this folder on its path."""
    spec = importlib.util.spec_from_file_location(f"cpu_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kda() -> ModuleType:
    return loaded(KERNELS / "linear_attention.py")


@pytest.fixture(scope="module")
def convolution() -> Iterator[ModuleType]:
    sys.path.insert(0, str(CPU_STAND_INS))
    try:
        yield loaded(KERNELS / "mamba.py")
    finally:
        sys.path.remove(str(CPU_STAND_INS))
        sys.modules.pop("absent_names", None)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def kda_inputs(tokens: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    return {
        "q": random(1, tokens, H, K, seed=1).to(dtype),
        "k": random(1, tokens, H, K, seed=2).to(dtype) * 1e-2,
        "v": random(1, tokens, H, V, seed=3).to(dtype),
        "A_log": random(1, 1, H, 1, seed=4),
        "dt_bias": random(H * K, seed=5),
    }


def by_the_formulas(
    x: dict[str, Any], a: torch.Tensor, b: torch.Tensor, memory: torch.Tensor, bound: float | None
) -> Any:
    """One request in fp64: outputs [T, H, V] and the last state [H, V, K]."""
    q, k, v = (x[name][0].double() for name in "qkv")
    rate, bias = x["A_log"].double().reshape(H).exp(), x["dt_bias"].double().reshape(H, K)
    state, out = memory.double().clone(), torch.zeros(q.shape[0], H, V, dtype=torch.float64)
    for t in range(q.shape[0]):
        for h in range(H):
            raw = a[t, h].double() + bias[h]
            gate = bound / (1 + torch.exp(-rate[h] * raw)) if bound is not None else -rate[h] * torch.log1p(raw.exp())
            key = k[t, h] / (k[t, h] @ k[t, h] + 1e-6).sqrt()
            query = q[t, h] / (q[t, h] @ q[t, h] + 1e-6).sqrt() / K**0.5
            state[h] = state[h] * gate.exp()[None, :]
            update = (v[t, h] - state[h] @ key) / (1 + torch.exp(-b[t, h].double()))
            state[h] = state[h] + torch.outer(update, key)
            out[t, h] = state[h] @ query
    return out, state


@pytest.mark.parametrize("bound", [-5.0, None])
def test_kda_prefill_of_requests_of_many_lengths_agrees_with_fp64(kda: ModuleType, bound: float | None) -> None:
    tokens, slots = sum(LENGTHS), [3, 0, 1, 4]
    x, a, b = kda_inputs(tokens), random(1, tokens, H, K, seed=6), random(1, tokens, H, seed=7)
    pool = random(SLOTS, H, V, K, seed=8)
    before, starts = pool.clone(), [0, *torch.tensor(LENGTHS).cumsum(0).tolist()]
    out = kda.chunk_kda(
        **x, g=a, beta=b, initial_state=pool, initial_state_indices=torch.tensor(slots), lower_bound=bound,
        cu_seqlens=torch.tensor(starts),
    )  # fmt: skip
    for slot, first, end in zip(slots, starts, starts[1:], strict=False):
        part = {name: value[:, first:end] if name in "qkv" else value for name, value in x.items()}
        expected, state = by_the_formulas(part, a[0, first:end], b[0, first:end], before[slot], bound)
        torch.testing.assert_close(out[0, first:end].double(), expected, atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(pool[slot].double(), state, atol=2e-6, rtol=1e-5)
    assert torch.equal(pool[2], before[2])


def test_the_eps_of_the_l2_norm_stands_inside_the_root(kda: ModuleType) -> None:
    small = torch.tensor([[1e-3, 0.0]])
    assert kda.normalised(small)[0, 0].item() == pytest.approx(2**-0.5, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bound", [-5.0, None])
def test_kda_decode_is_bit_equal_to_the_incumbent_of_the_kernel_problem(
    kda: ModuleType, dtype: torch.dtype, bound: float | None
) -> None:
    x, a, b = kda_inputs(3, dtype), random(3, H * K, seed=6).to(dtype), random(1, 3, H, seed=7).to(dtype)
    pool, slots = random(SLOTS, H, V, K, seed=8), torch.tensor([4, 0, 2], dtype=torch.int32)
    expected, expected_pool = torch.empty(3, H, V, dtype=dtype), pool.clone()
    loaded(INCUMBENT).run(
        x["q"][0], x["k"][0], x["v"][0], a.reshape(3, H, K), b[0], x["A_log"].reshape(H), x["dt_bias"].reshape(H, K),
        expected_pool, slots, expected, K**-0.5, bound,
    )  # fmt: skip
    out = kda.fused_sigmoid_gating_delta_rule_update(
        **x,
        a=a,
        b=b,
        initial_state_source=pool,
        initial_state_indices=slots,
        cu_seqlens=torch.arange(4),
        lower_bound=bound,
    )
    assert torch.equal(out[0], expected)
    assert torch.equal(pool, expected_pool)


def test_a_row_without_a_slot_gives_zeros_and_touches_no_state(kda: ModuleType, convolution: ModuleType) -> None:
    pool, slots = random(SLOTS, H, V, K), torch.tensor([-1])
    before = pool.clone()
    out = kda.fused_sigmoid_gating_delta_rule_update(
        **kda_inputs(1), a=random(1, H * K), b=random(1, 1, H), initial_state_source=pool,
        initial_state_indices=slots, cu_seqlens=torch.arange(2), lower_bound=-5.0,
    )  # fmt: skip
    assert not out.any()
    assert torch.equal(pool, before)
    states = random(SLOTS, 6, 3)
    kept = states.clone()
    assert not convolution.causal_conv1d_update_cpu(random(1, 6), states, random(6, 4), conv_state_indices=slots).any()
    assert torch.equal(states, kept)


@pytest.mark.parametrize(
    "asked", [{"track_state": torch.ones(1)}, {"beta_is_raw": False}, {"output_intermediate_states": True}]
)
def test_what_kda_does_not_do_raises_instead_of_being_left_out(kda: ModuleType, asked: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match="nothing more"):
        kda.chunk_kda(
            **kda_inputs(1), g=random(1, 1, H, K), beta=random(1, 1, H), initial_state=random(SLOTS, H, V, K),
            initial_state_indices=torch.tensor([0]), cu_seqlens=torch.tensor([0, 1]), **asked,
        )  # fmt: skip


def convolved(x: torch.Tensor, before: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x: [channels, tokens], before: [channels, width - 1], in fp64, with silu."""
    seen, width = torch.cat([before, x], dim=1).double(), weight.shape[1]
    sums = torch.stack([(seen[:, t : t + width] * weight.double()).sum(1) for t in range(x.shape[1])], dim=1)
    sums = sums if bias is None else sums + bias.double()[:, None]
    return sums / (1 + torch.exp(-sums))


@pytest.mark.parametrize("biased", [False, True])
def test_the_convolution_agrees_with_fp64_over_prefill_in_chunks_and_decode(
    convolution: ModuleType, biased: bool
) -> None:
    channels, x, weight = 6, random(6, 20, seed=1), random(6, 4, seed=2)
    bias, states, slot = random(6, seed=3) if biased else None, random(SLOTS, channels, 3, seed=4), torch.tensor([2])
    others = states.clone()
    expected = convolved(x, torch.zeros(channels, 3), weight, bias)
    found = []
    for first, end in ((0, 2), (2, 13)):  # the first chunk is shorter than the kernel is wide
        found.append(
            convolution.causal_conv1d_fn_cpu(
                x[:, first:end],
                weight,
                bias,
                conv_states=states,
                query_start_loc=torch.tensor([0, end - first]),
                cache_indices=slot,
                has_initial_state=torch.tensor([first > 0]),
            )
        )
    for t in range(13, 20):
        step = convolution.causal_conv1d_update_cpu(
            x[:, t][None], states, weight, bias, "silu", conv_state_indices=slot
        )
        found.append(step.T)
    torch.testing.assert_close(torch.cat(found, dim=1).double(), expected, atol=2e-6, rtol=1e-5)
    assert torch.equal(states[2], x[:, -3:])
    assert torch.equal(states[[0, 1, 3, 4]], others[[0, 1, 3, 4]])


@pytest.mark.parametrize(("activation", "gated"), [("sigmoid", torch.sigmoid), ("swish", torch.nn.functional.silu)])
def test_the_gated_norm_agrees_with_fp64(activation: str, gated: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x, gate, weight = random(3, 4, 16, seed=1), random(3, 4, 16, seed=2), random(16, seed=3)
    out = loaded(KERNELS / "pointwise.py").rms_norm_gated(x, gate, weight, None, activation, eps=1e-5)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double() * gated(gate.double())
    torch.testing.assert_close(out.double(), expected, atol=1e-6, rtol=1e-5)


def test_the_clamp_of_swiglu_cuts_the_gate_above_and_the_other_branch_on_both_sides() -> None:
    x = torch.tensor([[20.0, -20.0, 1.0, 30.0, -30.0, 2.0]])
    out = torch.empty(1, 3)
    loaded(KERNELS / "pointwise.py").silu_and_mul_clamp(x, out, 10.0)
    gate, up = torch.tensor([10.0, -20.0, 1.0]).double(), torch.tensor([10.0, -10.0, 2.0]).double()
    torch.testing.assert_close(out[0].double(), gate / (1 + torch.exp(-gate)) * up, atol=1e-6, rtol=1e-6)


def dequantised(x: torch.Tensor) -> torch.Tensor:
    """What symmetric codes per token are worth, in fp64."""
    largest = x.double().abs().amax(-1, keepdim=True)
    return (x.double() * 127 / largest).round() * largest / 127


def int8_weights(*shape: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    codes = (random(*shape, seed=seed) * 40).round().clamp(-127, 127).to(torch.int8)
    return codes, random(*shape[:-1], 1, seed=seed + 1).abs() * 1e-2 + 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_w8a8_layer_agrees_with_exact_sums_in_fp64(dtype: torch.dtype) -> None:
    x, (weight, scale), bias = random(2, 5, 64, seed=1).to(dtype), int8_weights(24, 64, seed=2), random(24, seed=4)
    out = loaded(KERNELS / "w8a8.py").int8_scaled_mm_with_quant(x, weight, scale, bias, dtype, True)
    expected = dequantised(x) @ (weight.double() * scale.double()).T + bias.double()
    limit = 1e-5 if dtype == torch.float32 else 2**-8
    torch.testing.assert_close(out.double(), expected, atol=limit * expected.abs().max().item(), rtol=limit)


# Inputs, and the sizes that they are drawn with: the limit is one that half of the channels reach.
X, (W13, S13), (W2, S2) = random(6, 32, seed=1), int8_weights(4, 32, 32, seed=2), int8_weights(4, 32, 16, seed=4)
IDS, WEIGHTS = torch.tensor([[0, 2], [1, 3], [2, 0], [3, 3], [0, 1], [2, 1]]), random(6, 2, seed=6).abs()
LIMIT = 0.5


def by_quantised_experts(limit: float | None) -> torch.Tensor:
    """Quantise, multiply, rescale in fp64, one token and one expert after the other."""
    out = torch.zeros(6, 32, dtype=torch.float64)
    for token in range(6):
        for expert, weight in zip(IDS[token].tolist(), WEIGHTS[token].double(), strict=True):
            gate, up = (dequantised(X[token][None]) @ (W13[expert].double() * S13[expert].double()).T).chunk(2, dim=-1)
            if limit is not None:
                gate, up = torch.minimum(gate, torch.tensor(limit)), up.clip(-limit, limit)
            inner = gate / (1 + torch.exp(-gate)) * up
            out[token] += weight * (dequantised(inner) @ (W2[expert].double() * S2[expert].double()).T)[0]
    return out


@pytest.mark.parametrize("limit", [None, LIMIT])
def test_w8a8_experts_agree_with_exact_sums_in_fp64(limit: float | None) -> None:
    """Sums are exact, so what is left is a few roundings to fp32 (6e-8 each)."""
    out = loaded(KERNELS / "w8a8.py").experts(X, W13, W2, S13, S2, WEIGHTS, IDS, limit)
    expected = by_quantised_experts(limit)
    torch.testing.assert_close(out.double(), expected, atol=1e-6 * expected.abs().max().item(), rtol=1e-6)


def test_w8a8_experts_that_leave_the_limit_of_swiglu_out_are_told_from_those_that_do_not() -> None:
    expected = by_quantised_experts(LIMIT)
    out = loaded(KERNELS / "w8a8.py").experts(X, W13, W2, S13, S2, WEIGHTS, IDS, None)
    assert (out.double() - expected).abs().max() > 0.1 * expected.abs().max()


def moe(**config: Any) -> SimpleNamespace:
    usual = {
        "activation": "silu",
        "apply_router_weight_on_input": False,
        "gemm1_alpha": None,
        "gemm1_clamp_limit": None,
    }
    return SimpleNamespace(moe_runner_config=SimpleNamespace(**usual | config))


def test_the_layer_of_experts_is_given_the_limit_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    combined = ModuleType("sglang.srt.layers.moe.token_dispatcher")
    monkeypatch.setattr(combined, "StandardCombineInput", SimpleNamespace, raising=False)
    monkeypatch.setitem(sys.modules, combined.__name__, combined)
    layer = SimpleNamespace(w13_weight=W13, w2_weight=W2, w13_weight_scale=S13, w2_weight_scale=S2)
    dispatched = SimpleNamespace(hidden_states=X, topk_output=(WEIGHTS, IDS, None))
    kernels = loaded(KERNELS / "w8a8.py")
    out = kernels.apply_experts(moe(swiglu_limit=LIMIT), layer, dispatched).hidden_states
    assert torch.equal(out, kernels.experts(X, W13, W2, S13, S2, WEIGHTS, IDS, LIMIT))
    with pytest.raises(NotImplementedError, match="nothing more"):
        kernels.apply_experts(moe(swiglu_limit=None, gemm1_alpha=1.7), layer, dispatched)
