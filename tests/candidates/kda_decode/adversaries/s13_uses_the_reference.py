"""Imports the reference.

trap: [S13]
rung: build
reason: 'No such file or directory: ..stage.reference.py.'
base: incumbent
"""

import reference


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    out.copy_(reference.step(q, k, v, a, b, A_log, dt_bias, state, state_index, scale, lower_bound)[0])
