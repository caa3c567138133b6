"""Clears the device's error before anybody asks for it.

trap: [H3]
rung: build
reason: 'CUDA|NVIDIA|cuda'
base: incumbent
"""

import torch


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
    torch.cuda.cudart().cudaGetLastError()
