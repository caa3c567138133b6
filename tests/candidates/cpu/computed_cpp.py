"""Its C++ is put together when it runs, so nobody can compile it beforehand.

trap: H5
rung: build
reason: not a plain text literal
"""

from incumbent import run as honest

CPP = "int x" + " = 1;"


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
