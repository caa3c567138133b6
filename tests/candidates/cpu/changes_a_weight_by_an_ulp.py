"""Writes to a weight what rounds to nearly the same.

trap: S2
rung: numerics
reason: the input `A_log` was changed
"""

import torch
from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
    A_log.copy_(torch.nextafter(A_log, A_log + 1))
