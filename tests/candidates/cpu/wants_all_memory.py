"""Wants more memory than there is.

trap: H5
rung: numerics
reason: more memory than the limit
"""

from incumbent import run as honest

MUCH = 1 << 40


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    bytearray(MUCH)
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
