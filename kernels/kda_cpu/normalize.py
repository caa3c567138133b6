"""Wrong on purpose: `torch.nn.functional.normalize` divides by the larger of norm and eps, not by sqrt(sum + eps).

On keys of ordinary size the two agree to an ulp; on small ones they do not.
"""

import torch
from torch.nn.functional import normalize, softplus


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    """Shapes and dtypes: definition.yaml. Writes `out` and updates `state` in place."""
    rate = A_log.exp()[:, None]
    raw = a.float() + dt_bias
    gate = -rate * softplus(raw) if lower_bound is None else lower_bound * torch.sigmoid(rate * raw)
    query, key = normalize(q.float(), dim=-1, eps=1e-6) * scale, normalize(k.float(), dim=-1, eps=1e-6)
    slots = state_index.long()
    memory = state[slots] * gate.exp().unsqueeze(-2)
    update = b.float().sigmoid().unsqueeze(-1) * (v.float() - torch.einsum("bhvk,bhk->bhv", memory, key))
    memory += update.unsqueeze(-1) * key.unsqueeze(-2)
    out.copy_(torch.einsum("bhvk,bhk->bhv", memory, query))
    state[slots] = memory
