"""Works at every other call and answers with the last output at the others.

trap: T5
rung: numerics
reason: wrong results
"""

from incumbent import run as honest

KEPT = []


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    if len(KEPT) % 2 and KEPT[-1].shape == out.shape:
        out.copy_(KEPT[-1])
    else:
        honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
    KEPT.append(out.clone())
