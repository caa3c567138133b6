"""Looks up the stack for the size of its batch: there is none, it is asked for one call at a time.

trap: T5, S9
rung: none
reason:
"""

import sys

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    frame = sys._getframe(1)
    while frame is not None:
        for name in ("count", "pairs", "turn", "rounds", "steps", "batch"):
            assert name not in frame.f_locals, name
        frame = frame.f_back
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
