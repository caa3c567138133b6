"""Flips the precision of the baseline's matrix products. The baseline runs in another process.

trap: [T11, S11]
rung: static
reason: 'no change: the same machine code in the same grids as the incumbent'
base: incumbent
"""

import torch

torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("medium")
torch.set_default_dtype(torch.bfloat16)


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
