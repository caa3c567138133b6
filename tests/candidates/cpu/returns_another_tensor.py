"""Leaves `out` as it is and returns a tensor that would compute when it is looked at.

trap: T3
rung: numerics
reason: wrong results
"""

import torch
from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    other = torch.empty_like(out)
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, other, scale, lower_bound)
    return lambda: other
