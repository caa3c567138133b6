"""Reads one element with torch and skips the work if it has seen it.

trap: [C2]
rung: build
reason: 'work outside the kernels: aten._local_scalar_dense'
base: incumbent
"""

SEEN = set()


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    element = q[0, 0, 0].item()
    if element not in SEEN:
        honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
    SEEN.add(element)
