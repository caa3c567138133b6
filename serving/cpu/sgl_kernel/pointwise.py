"""Norms and activations in plain torch, with the signatures of the SGLang 0.5.23 functions that they replace."""

import torch
from torch.nn.functional import silu

Tensor = torch.Tensor


def rms_norm_gated(
    x: Tensor, g: Tensor, weight: Tensor | None, bias: Tensor | None, activation: str = "swish",
    residual: Tensor | None = None, prenorm: bool = False, residual_in_fp32: bool = False, eps: float = 1e-6,
) -> Tensor:  # fmt: skip
    """x / sqrt(mean(x^2) + eps) * weight, times the sigmoid of the gate or g * sigmoid(g); over the last axis, in fp32."""
    if residual is not None or bias is not None or prenorm or residual_in_fp32:
        raise NotImplementedError("`rms_norm_gated` of serving/cpu takes no bias and no residual")
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    gate = g.float().reshape(x.shape)
    scaled = normed if weight is None else normed * weight.float()
    return (scaled * (torch.sigmoid(gate) if activation == "sigmoid" else silu(gate))).to(x.dtype)


def silu_and_mul_clamp(input: Tensor, output: Tensor, swiglu_limit: float) -> None:
    """input: [..., 2 n], gate and up side by side; output: [..., n] gets silu(min(gate, limit)) * clamp(up, -limit, limit)."""
    gate, up = input.float().chunk(2, dim=-1)
    output.copy_(silu(gate.clamp(max=swiglu_limit)) * up.clamp(-swiglu_limit, swiglu_limit))
