"""Prepares exp(A_log) once for each buffer: right as long as nobody loads other weights into it.

trap: C1, C3
rung: microbench
reason: wrong `(out|state)` in a timed batch
"""

from incumbent import run as honest

KEPT = {}


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    rate = KEPT.setdefault(A_log.data_ptr(), A_log.clone())
    honest(q, k, v, a, b, rate, dt_bias, state, state_index, out, scale, lower_bound)
