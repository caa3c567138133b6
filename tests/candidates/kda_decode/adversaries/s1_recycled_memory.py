"""Does nothing, and returns memory that the allocator may have recycled from the answer.

trap: [S1]
rung: build
reason: 'returned without launching a kernel'
base: incumbent
"""

import torch


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    return torch.empty_like(out)
