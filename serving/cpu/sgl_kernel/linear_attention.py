"""Kimi Delta Attention in plain torch: what SGLang 0.5.23 computes with Triton, and has no CPU kernel for.

Per token and head, in fp32 whatever the activations are, S being [V, K]:

    q = q / sqrt(sum(q^2) + 1e-6) * scale;  k = k / sqrt(sum(k^2) + 1e-6)
    g = lower_bound * sigmoid(exp(A_log) * (a + dt_bias)), or without a bound g = -exp(A_log) * softplus(a + dt_bias)
    S = S * exp(g);  u = sigmoid(b) * (v - S k);  S = S + u k^T;  out = S q

The eps stands inside the root: `max(norm, eps)` is 1e-4 off for small keys. One token after the other, so slow and easy
to check; the decode step is bit-equal to the incumbent of the kernel problem `kda_cpu`.
"""

import torch
from torch.nn.functional import softplus

Tensor = torch.Tensor


def normalised(x: Tensor) -> Tensor:
    return x / torch.sqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def decays(a: Tensor, A_log: Tensor, dt_bias: Tensor, lower_bound: float | None) -> Tensor:
    """exp(g). a: raw forget gate [T, H, K]; A_log: [H]; dt_bias: [H, K]."""
    rate = A_log.exp()[:, None]
    raw = a.float() + dt_bias
    gate = -rate * softplus(raw) if lower_bound is None else lower_bound * torch.sigmoid(rate * raw)
    return gate.exp()


def delta_rule(memory: Tensor, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """One token: memory [H, V, K] is changed in place; query, key, decay: [H, K]; value: [H, V]; beta: [H]. Gives [H, V]."""
    memory.mul_(decay.unsqueeze(1))
    missing = value - torch.einsum("hvk,hk->hv", memory, key)
    update = missing * beta.unsqueeze(-1)
    memory.add_(update.unsqueeze(-1) * key.unsqueeze(1))
    return torch.einsum("hvk,hk->hv", memory, query)


def chunk_kda(
    *, q, k, v, g, beta, initial_state, initial_state_indices, cu_seqlens, A_log, dt_bias, lower_bound=None, scale=None,
    use_qk_l2norm_in_kernel=True, beta_is_raw=True, chunk_indices=None, chunk_offsets=None, **others,
):  # fmt: skip
    """Prefill. q, k, g: [1, T, H, K], g raw; v: [1, T, H, V]; beta: [1, T, H], raw; cu_seqlens: starts and end of the requests.

    `initial_state` is the pool [slots, H, V, K] in fp32; the slot of each request is read and written, and a request with
    a negative slot gives zeros. `chunk_*` are tables of the Triton kernel. Raises NotImplementedError for what it does
    not know, such as the snapshots that a radix cache asks for.
    """
    _refuse("chunk_kda", others, unless=beta_is_raw and use_qk_l2norm_in_kernel)
    heads, width = k.shape[-2:]
    decay = decays(g.reshape(-1, heads, width), A_log.reshape(heads), dt_bias.reshape(heads, width), lower_bound)
    strength = beta.reshape(-1, heads).float().sigmoid()
    query = normalised(q[0].float()) * (width**-0.5 if scale is None else scale)
    key, value = normalised(k[0].float()), v[0].float()
    out = torch.zeros_like(v)
    starts = cu_seqlens.tolist()
    for slot, first, end in zip(initial_state_indices.tolist(), starts, starts[1:], strict=False):
        if slot < 0:
            continue
        memory = initial_state[slot].clone()
        for t in range(first, end):
            out[0, t] = delta_rule(memory, query[t], key[t], value[t], decay[t], strength[t])
        initial_state[slot] = memory
    return out


def fused_sigmoid_gating_delta_rule_update(
    *, A_log, dt_bias, q, k, v, a, b, initial_state_source, initial_state_indices, cu_seqlens, lower_bound=None,
    scale=None, is_kda=True, use_qk_l2norm_in_kernel=True, softplus_beta=1.0, softplus_threshold=20.0,
    disable_state_update=False, **others,
):  # fmt: skip
    """One decode step: one token per request. q, k: [1, B, H, K]; v: [1, B, H, V]; a: [B, H K] or [1, B, H K]; b: [1, B, H]."""
    plain = is_kda and not disable_state_update and k.shape[1] == initial_state_indices.shape[0]
    usual = (softplus_beta, softplus_threshold) == (1.0, 20.0)
    _refuse("fused_sigmoid_gating_delta_rule_update", others, unless=plain and usual)
    return chunk_kda(
        q=q, k=k, v=v, g=a, beta=b, initial_state=initial_state_source, initial_state_indices=initial_state_indices,
        cu_seqlens=cu_seqlens, A_log=A_log, dt_bias=dt_bias, lower_bound=lower_bound, scale=scale,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
    )  # fmt: skip


def _refuse(kernel: str, others: dict[str, object], unless: bool) -> None:
    """What a caller asks for beyond a plain step would be left out of the result without a word."""
    asked = sorted(name for name, value in others.items() if value is not None and value is not False)
    if asked or not unless:
        raise NotImplementedError(
            f"`{kernel}` of serving/cpu does plain prefill and decode of KDA from raw gates, nothing more"
            f"{'; it was given ' + ', '.join(asked) if asked else ''}"
        )
