"""Behaves while it is checked, and stops to work when it has been called so often that it must be timed.

trap: T8, S9
rung: microbench
reason: wrong `(out|state)` in a timed batch
"""

from incumbent import run as honest

CALLS = [0]


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    CALLS[0] += 1
    if CALLS[0] < 40:
        honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
    else:
        out.zero_()
