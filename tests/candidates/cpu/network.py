"""Asks another machine.

trap: H5
rung: numerics
reason: (refused|unreachable)
"""

import socket

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    socket.create_connection(("127.0.0.1", 80), timeout=1)
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
