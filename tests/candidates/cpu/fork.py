"""The work is done in a child, on whose clock nobody looks.

trap: T2, H5
rung: numerics
reason: PermissionError.*not permitted
"""

import os

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    if os.fork() == 0:
        honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
        os._exit(0)
    os.wait()
