"""W8A8 in plain torch: int8 weights with a scale per output channel, int8 activations with a scale per token.

SGLang's CPU path wants AMX or an Arm for it, and a kernel from its library. The sums are exact int32 (`torch._int_mm`), scaled
in fp32 and rounded once to the type of the activations.
"""

from typing import Any

import torch
from torch.nn.functional import silu

Tensor = torch.Tensor

# SGLang takes the way that hands plain, unpacked weights to the operators below when it believes to be on an Arm.
UNPACKED_WEIGHTS = True
ACTIVATIONS = [torch.float32, torch.bfloat16, torch.float16]


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """x: [tokens, K]. Symmetric codes in [-127, 127] and the scale of each token [tokens, 1]."""
    largest = x.float().abs().amax(-1, keepdim=True).clamp_min(1e-10)
    return torch.round(x.float() * (127 / largest)).to(torch.int8), largest / 127


def int8_scaled_mm_with_quant(
    x: Tensor, weight: Tensor, weight_scale: Tensor, bias: Tensor | None, out_dtype: torch.dtype, is_vnni: bool = True
) -> Tensor:
    """x: [..., K]; weight: [N, K] int8; weight_scale: [N, 1] or [N]. `is_vnni` says how a packed weight would lie."""
    codes, scale = quantised(x.reshape(-1, x.shape[-1]))
    sums = torch._int_mm(codes, weight.t())
    scaled = sums.float() * scale * weight_scale.reshape(1, -1)
    whole = scaled if bias is None else scaled + bias.float()
    return whole.to(out_dtype).reshape(*x.shape[:-1], weight.shape[0])


def experts(
    x: Tensor, w13: Tensor, w2: Tensor, w13_scale: Tensor, w2_scale: Tensor, weights: Tensor, ids: Tensor,
    limit: float | None,
) -> Tensor:  # fmt: skip
    """x: [tokens, H]; w13: [experts, 2 I, H], gate and up; w2: [experts, H, I]; weights, ids: [tokens, k]. Gives [tokens, H].

    With a SwiGLU `limit` the gate is cut above it, and the other branch on both sides.
    """
    out = torch.zeros(x.shape, dtype=torch.float32)
    for expert in ids.unique().tolist():
        token, place = (ids == expert).nonzero(as_tuple=True)
        gate_up = int8_scaled_mm_with_quant(x[token], w13[expert], w13_scale[expert], None, x.dtype)
        gate, up = gate_up.float().chunk(2, dim=-1)
        if limit is not None:
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        inner = (silu(gate) * up).to(x.dtype)
        answer = int8_scaled_mm_with_quant(inner, w2[expert], w2_scale[expert], None, torch.float32)
        out.index_add_(0, token, answer * weights[token, place, None].float())
    return out.to(x.dtype)


def apply_experts(method: Any, layer: Any, dispatch_output: Any) -> Any:
    """In the place of `W8A8Int8MoEMethod.apply`, which on a CPU leaves the model's SwiGLU limit out.

    Raises NotImplementedError for another activation than SiLU, and for weights of the router on the input.
    """
    from sglang.srt.layers.moe.token_dispatcher import StandardCombineInput

    config = method.moe_runner_config
    others = (config.gemm1_alpha, config.gemm1_clamp_limit)
    if config.activation != "silu" or config.apply_router_weight_on_input or any(one is not None for one in others):
        raise NotImplementedError("W8A8 experts of serving/cpu do SiLU with or without a SwiGLU limit, nothing more")
    weights, ids, _ = dispatch_output.topk_output
    of_layer = (layer.w13_weight, layer.w2_weight, layer.w13_weight_scale, layer.w2_weight_scale)
    out = experts(dispatch_output.hidden_states, *of_layer, weights, ids, config.swiglu_limit)
    return StandardCombineInput(hidden_states=out)
