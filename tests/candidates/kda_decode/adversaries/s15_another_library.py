"""Calls another project's kernel.

trap: [S15]
rung: build
reason: 'No module named .sgl_kernel.'
base: incumbent
"""

from sgl_kernel import kda_decode_fused


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    kda_decode_fused(q, k, v, a, b, state, out)
