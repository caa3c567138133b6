r"""C++ that does not compile.

trap: H10
rung: build
reason: g\+\+: .*error
"""

from incumbent import run as honest

CPP = "int x = ;"


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
