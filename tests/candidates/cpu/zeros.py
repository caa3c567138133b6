"""All zeros.

trap: S3
rung: numerics
reason: wrong results
"""


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    out.zero_()
