"""Takes the first query as a fingerprint of all inputs; other requests come along unseen.

trap: C2
rung: microbench
reason: wrong `(out|state)` in a timed batch
"""

from incumbent import run as honest

KEPT = {}


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    key = (q.shape, float(A_log[0]) > 0)
    if key not in KEPT or q.shape[0] > 1 or q.shape[-1] != 32:
        honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
        KEPT[key] = out.clone()
    out.copy_(KEPT[key])
