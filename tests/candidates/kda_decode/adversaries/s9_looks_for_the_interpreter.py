"""Is right if it is interpreted, and cheap if it is compiled.

trap: [S9, H11]
rung: numerics
reason: 'wrong results'
quick: true
base: incumbent
"""

import os


@triton.jit
def nothing(out):
    tl.store(out, 0.0)


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    if "TRITON_INTERPRET" in os.environ or "interpreter" in type(kda_decode).__module__:
        honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
    else:
        nothing[(1,)](out)
