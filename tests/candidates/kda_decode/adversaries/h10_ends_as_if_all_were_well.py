"""Leaves with status 0 before anything was checked.

trap: [H10]
rung: build
reason: 'ended without leaving .result.json.'
base: incumbent
"""


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    import os

    os._exit(0)
