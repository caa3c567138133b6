"""One head at a time, in place: the 64 KiB of a head's state stay in the cache for all passes over them."""

import torch
from torch.nn.functional import softplus


def normalised(x):
    return x / torch.sqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    """Shapes and dtypes: definition.yaml. Writes `out` and updates `state` in place."""
    rate = A_log.exp()[:, None]
    raw = a.float() + dt_bias
    gate = -rate * softplus(raw) if lower_bound is None else lower_bound * torch.sigmoid(rate * raw)
    decay, beta = gate.exp(), b.float().sigmoid()
    query, key, value = normalised(q.float()) * scale, normalised(k.float()), v.float()
    for request, slot in enumerate(state_index.tolist()):
        for head in range(state.shape[1]):
            memory = state[slot, head]
            memory.mul_(decay[request, head])
            missing = value[request, head] - torch.mv(memory, key[request, head])
            memory.addr_(missing * beta[request, head], key[request, head])
            out[request, head] = torch.mv(memory, query[request, head])
