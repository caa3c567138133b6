"""Keeps the state in bf16, which halves what a step reads.

trap: S6, T11
rung: numerics
reason: wrong results
"""

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
    state.copy_(state.bfloat16().float())
