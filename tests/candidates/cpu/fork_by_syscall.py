"""As `fork`, past every wrapper: if it is refused, nothing is done.

trap: T2, H5
rung: numerics
reason: wrong results
"""

import ctypes

from incumbent import run as honest

CLONE, EXIT, SIGCHLD = 56, 60, 17
_libc = ctypes.CDLL(None)


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    if _libc.syscall(CLONE, SIGCHLD, 0, 0, 0, 0) == 0:
        honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
        _libc.syscall(EXIT, 0)
