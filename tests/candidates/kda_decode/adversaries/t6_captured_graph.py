"""Captures a CUDA graph once and replays it.

trap: [T6, C5]
rung: build
reason: 'CUDA|NVIDIA|cuda'
base: incumbent
"""

import torch

GRAPH = []


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    if not GRAPH:
        GRAPH.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(GRAPH[0]):
            honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
    GRAPH[0].replay()
