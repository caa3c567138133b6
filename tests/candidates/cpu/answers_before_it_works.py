"""Says over the socket that it is done, and then works.

trap: T3, H4
rung: numerics
reason: answered before it was asked|wrong results
"""

import os

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    os.write(0, b"done")
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
