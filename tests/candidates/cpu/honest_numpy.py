"""All requests at once, in numpy, with buffers that it keeps.

trap:
rung: none
reason:
"""

import numpy as np
import torch

SCRATCH = {}


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    q, k, v, a, b = (x.float().numpy() for x in (q, k, v, a, b))
    rate, raw = np.exp(A_log.numpy())[:, None], a + dt_bias.numpy()
    gate = -rate * np.logaddexp(raw, 0) if lower_bound is None else lower_bound / (1 + np.exp(-rate * raw))
    q = q * (scale / np.sqrt((q * q).sum(-1, keepdims=True) + np.float32(1e-6)))
    k = k / np.sqrt((k * k).sum(-1, keepdims=True) + np.float32(1e-6))
    shape = (*v.shape, k.shape[-1])
    memory = SCRATCH.setdefault(shape, np.empty(shape, np.float32))
    np.multiply(state.numpy()[state_index.numpy()], np.exp(gate)[:, :, None, :], out=memory)
    update = (v - np.einsum("bhvk,bhk->bhv", memory, k)) / (1 + np.exp(-b))[..., None]
    memory += update[..., None] * k[:, :, None, :]
    out.copy_(torch.from_numpy(np.einsum("bhvk,bhk->bhv", memory, q)))
    state.numpy()[state_index.numpy()] = memory
