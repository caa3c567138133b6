"""Does the work at every second call.

trap: [T5]
rung: build
reason: 'launches other kernels when called again'
quick: true
base: incumbent
"""

CALLS = []


@triton.jit
def nothing(out):
    tl.store(out, 0.0)


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    CALLS.append(1)
    if len(CALLS) % 2:
        honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
    else:
        nothing[(1,)](out)
