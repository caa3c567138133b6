"""The short convolution of linear attention in plain torch, under the names that SGLang imports from its CPU library."""

import itertools

import torch
from absent_names import absent_attributes
from torch.nn.functional import conv1d, silu

Tensor = torch.Tensor

__getattr__ = absent_attributes("sgl_kernel.mamba")


def causal_conv1d_fn_cpu(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, conv_states: Tensor, query_start_loc: Tensor,
    cache_indices: Tensor, has_initial_state: Tensor | None = None, activation: str | None = "silu",
    seq_lens_cpu: object = None,
) -> Tensor:  # fmt: skip
    """Prefill. x: [channels, tokens of all requests]; weight: [channels, width]; conv_states: [slots, channels, width - 1].

    The state of a request is its last width - 1 inputs; it starts from zero unless `has_initial_state` says otherwise. A
    request with a negative slot gives zeros.
    """
    out = torch.zeros_like(x)
    starts = query_start_loc.tolist()
    for request, (first, end) in enumerate(itertools.pairwise(starts)):
        slot = int(cache_indices[request])
        if slot < 0 or first == end:
            continue
        if has_initial_state is None or not has_initial_state[request]:
            conv_states[slot].zero_()
        out[:, first:end] = convolve(x[:, first:end], conv_states[slot], weight, bias, activation)
    return out


def causal_conv1d_update_cpu(
    x: Tensor, conv_state: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None, *,
    conv_state_indices: Tensor,
) -> Tensor:  # fmt: skip
    """One decode step. x: [requests, channels]; the rest as in prefill."""
    out = torch.zeros_like(x)
    for request, slot in enumerate(conv_state_indices.tolist()):
        if slot >= 0:
            out[request] = convolve(x[request, :, None], conv_state[slot], weight, bias, activation)[:, 0]
    return out


def convolve(x: Tensor, state: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    """x: [channels, tokens] behind `state` [channels, width - 1], which is moved on. In fp32, given back in the type of x."""
    seen = torch.cat([state.float(), x.float()], dim=1)
    summed = conv1d(seen[None], weight.float()[:, None], None if bias is None else bias.float(), groups=len(weight))[0]
    state.copy_(seen[:, -state.shape[1] :])
    return (silu(summed) if activation in ("silu", "swish") else summed).to(x.dtype)
