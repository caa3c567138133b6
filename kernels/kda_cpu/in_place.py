"""Torch alone: the gate and norms as the incumbent's, the state of a request updated where it lies.

No copy of the state is made; decayed state times key and query is one matrix product each, the update a rank-one product.
"""

import torch
from torch.nn.functional import softplus


def normalised(x):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    """Shapes and dtypes: definition.yaml. Writes `out` and updates `state` in place."""
    rate = A_log.exp()[:, None]
    raw = a.float() + dt_bias
    gate = softplus(raw).mul_(-rate) if lower_bound is None else raw.mul_(rate).sigmoid_().mul_(lower_bound)
    decay, beta = gate.exp_().unsqueeze(-2), b.float().sigmoid().unsqueeze(-1)
    key = normalised(k.float())
    query, value = (normalised(q.float()) * scale).unsqueeze(-1), v.float()
    rows, columns = key.unsqueeze(-2), key.unsqueeze(-1)
    for request, slot in enumerate(state_index.tolist()):
        memory = state[slot]
        memory.mul_(decay[request])
        update = (value[request] - torch.bmm(memory, columns[request]).squeeze(-1)).mul_(beta[request])
        memory.baddbmm_(update.unsqueeze(-1), rows[request])
        out[request] = torch.bmm(memory, query[request]).squeeze(-1)
