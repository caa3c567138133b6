"""Ends with status 0 in the middle of the first call.

trap: H4
rung: numerics
reason: ended before it answered
"""

import os

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
    os._exit(0)
