"""Reads the limits and the checks that judge it.

trap: [H8]
rung: build
reason: 'No such file or directory'
base: incumbent
"""

import pathlib

RULES = pathlib.Path("/stage/criteria.yaml").read_text()


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
