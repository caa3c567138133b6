"""Computes in fp64 and rounds at the end; prints; keeps a counter; has a default argument.

trap:
rung: none
reason:
"""

import torch
from torch.nn.functional import softplus

CALLS = [0]


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, eps=1e-6):
    CALLS[0] += 1
    print(CALLS[0])
    q, k, v, a, b, rate = (x.double() for x in (q, k, v, a, b, A_log))
    rate = rate.exp()[:, None]
    gate = -rate * softplus(a + dt_bias) if lower_bound is None else lower_bound * torch.sigmoid(rate * (a + dt_bias))
    q, k = (x / (x.square().sum(-1, keepdim=True) + eps).sqrt() for x in (q, k))
    memory = state[state_index.long()].double() * gate.exp()[:, :, None, :]
    update = b.sigmoid()[..., None] * (v - (memory @ k[..., None])[..., 0])
    memory = memory + update[..., None] * k[:, :, None, :]
    out.copy_((memory @ q[..., None])[..., 0] * scale)
    state[state_index.long()] = memory.float()
