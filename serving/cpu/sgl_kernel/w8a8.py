"""W8A8 in plain torch: int8 weights with a scale per output channel, int8 activations with a scale per token.

SGLang's CPU path wants AMX or an Arm for it, and a kernel from its library. The sums are exact int32 (`torch._int_mm`), scaled
in fp32 and rounded once to the type of the activations.
"""

import torch
from torch.nn.functional import silu

Tensor = torch.Tensor

# SGLang takes the way that hands plain, unpacked weights to the operators below when it believes to be on an Arm.
UNPACKED_WEIGHTS = True
INT8_W8A8 = 1


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


def fused_experts_cpu(
    x: Tensor, w13: Tensor, w2: Tensor, topk_weights: Tensor, topk_ids: Tensor, inplace: bool, method: int,
    w13_scale: Tensor, w2_scale: Tensor, w13_zero: None, w2_zero: None, block_size: None, w13_bias: None, w2_bias: None,
    alpha: None, limit: float | None, is_vnni: bool, activation: str,
) -> Tensor:  # fmt: skip
    """x: [tokens, H]; w13: [experts, 2 I, H], gate and up; w2: [experts, H, I]; topk_*: [tokens, k]. Gives [tokens, H].

    SGLang 0.5.23 gives no `limit` here, so a SwiGLU limit of the model is not applied. Raises NotImplementedError for
    anything but W8A8 with SiLU.
    """
    unknown = (w13_zero, w2_zero, block_size, w13_bias, w2_bias, alpha, limit)
    if int(method) != INT8_W8A8 or activation != "silu" or inplace or any(value is not None for value in unknown):
        raise NotImplementedError(
            "`fused_experts_cpu` of serving/cpu does W8A8 with scales per channel and SiLU, nothing more"
        )
    out = torch.zeros(x.shape, dtype=torch.float32)
    for expert in topk_ids.unique().tolist():
        token, place = (topk_ids == expert).nonzero(as_tuple=True)
        gate, up = int8_scaled_mm_with_quant(x[token], w13[expert], w13_scale[expert], None, x.dtype).chunk(2, dim=-1)
        inner = (silu(gate.float()) * up.float()).to(x.dtype)
        answer = int8_scaled_mm_with_quant(inner, w2[expert], w2_scale[expert], None, torch.float32)
        out.index_add_(0, token, answer * topk_weights[token, place, None].float())
    return out.to(x.dtype)
