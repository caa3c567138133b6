"""Forks: the child says another thing than its parent. Both can only say what they would launch.

trap: [H4, T2]
rung: static
reason: 'no change: the same machine code in the same grids as the incumbent'
base: incumbent
"""

import os

if os.fork() == 0:
    os._exit(0)


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
