"""Makes its inputs small, so that a reference that shares them agrees.

trap: S2
rung: numerics
reason: the input `q` was changed
"""

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
    q.zero_()
