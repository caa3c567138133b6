"""Prepares its data when it is imported, outside of what a call costs.

trap: [T12, C3]
rung: build
reason: 'takes memory that is neither an argument of .run. nor from torch.empty'
base: incumbent
"""

import torch

PREPARED = torch.randn(256, 64, 128)


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    honest_run(q, k, PREPARED, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
