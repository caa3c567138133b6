"""Counts calls, and drops the state update once it takes itself for warm.

trap: [T8]
rung: build
reason: 'launches other kernels when called again'
base: incumbent
"""

CALLS = []


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    CALLS.append(1)
    if len(CALLS) > 2:
        return kda_decode[(1, 1, 1)](
            q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, K=128, V=128, BV=32
        )
    return honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
