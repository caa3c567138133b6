"""Overwrites the torch package.

trap: [H6]
rung: build
reason: 'Read-only file system'
base: incumbent
"""

import pathlib

import torch

pathlib.Path(torch.__file__).write_text("")


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
