"""How a winner reaches SGLang 0.5.23 on a CPU: laid beside the winner as `candidate.py` (and `candidate.cpp.so`).

`install()` gives `kda_triton` the name that it imports on a GPU only, before the first decode step. Layouts, from
`KDAAttnBackend.forward_decode`: q, k, v are [1, B, H, K or V] views into one [B, 3 H K] tensor; a is [B, H K] or
[1, B, H, K]; b is [1, B, H]; the pool is [slots, H, V, K]; one token per request, so `cu_seqlens` is 0..B.
"""

import importlib

import torch
from candidate import run

MODULE = "sglang.srt.layers.attention.linear.kernels.kda_triton"
NAME = "fused_sigmoid_gating_delta_rule_update"


def decode(
    *, A_log, dt_bias, q, k, v, a, b, initial_state_source, initial_state_indices, cu_seqlens, lower_bound=None,
    scale=None, is_kda=True, use_qk_l2norm_in_kernel=True, softplus_beta=1.0, softplus_threshold=20.0,
    disable_state_update=False, **others,
):  # fmt: skip
    """What `TritonKDAKernel.decode` calls. Raises NotImplementedError for anything but a plain decode step of KDA."""
    requests, heads, width = initial_state_indices.shape[0], *k.shape[-2:]
    if not is_kda or not use_qk_l2norm_in_kernel or disable_state_update or k.shape[1] != requests:
        raise NotImplementedError("a CPU kernel of `kda_cpu` does plain decode steps of KDA, one token per request")
    if (softplus_beta, softplus_threshold) != (1.0, 20.0) or any(x is not None for x in others.values()):
        raise NotImplementedError(f"a CPU kernel of `kda_cpu` was given what it does not know: {sorted(others)}")
    out = torch.empty(requests, heads, v.shape[-1], dtype=v.dtype)
    run(
        q[0].contiguous(), k[0].contiguous(), v[0].contiguous(), a.reshape(requests, heads, width).contiguous(),
        b.reshape(requests, heads).contiguous(), A_log.reshape(heads).float(), dt_bias.reshape(heads, width).float(),
        initial_state_source, initial_state_indices, out, width**-0.5 if scale is None else scale, lower_bound,
    )  # fmt: skip
    return out.unsqueeze(0)


def install():
    """Put `decode` in the place of the replaced function."""
    setattr(importlib.import_module(MODULE), NAME, decode)
