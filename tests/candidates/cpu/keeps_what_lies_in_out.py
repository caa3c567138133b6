"""Trusts that `out` still holds what an honest call left there.

trap: C6, S1
rung: numerics
reason: wrong results
"""


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    return None
