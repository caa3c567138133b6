"""Asks the driver to keep its data in L2 from call to call.

trap: [T9]
rung: build
reason: 'CUDA|NVIDIA|cuda'
base: incumbent
"""

import torch


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    torch.cuda.cudart().cudaDeviceSetLimit(6, 1 << 26)
    honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
