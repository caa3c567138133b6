"""Skips the work for tensors that it has seen, by their address.

trap: [C1, T5]
rung: build
reason: 'launches other kernels when called again with the same tensors'
quick: true
base: incumbent
"""

SEEN = set()


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    if q.data_ptr() not in SEEN:
        honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
    SEEN.add(q.data_ptr())
