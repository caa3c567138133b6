"""Does not return.

trap: T13
rung: numerics
reason: did not return within|CPU time
"""


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    while True:
        pass
