"""Writes where it has no memory.

trap: S5
rung: numerics
reason: SIGSEGV
"""

import ctypes

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
    ctypes.memset(8, 1, 1)
