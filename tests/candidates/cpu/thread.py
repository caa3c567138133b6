"""Hands the work to a thread that may still be at it when the call returns.

trap: T2
rung: numerics
reason: can't start new thread
"""

import threading

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    threading.Thread(
        target=honest, args=(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
    ).start()
