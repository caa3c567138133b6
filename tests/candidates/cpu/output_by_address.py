"""Computes each output once and hands the same out again for the same buffers.

trap: C1
rung: numerics
reason: wrong results
"""

from incumbent import run as honest

KEPT = {}


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    if q.data_ptr() not in KEPT:
        honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
        KEPT[q.data_ptr()] = out.clone(), state.clone()
    out.copy_(KEPT[q.data_ptr()][0])
    state.copy_(KEPT[q.data_ptr()][1])
