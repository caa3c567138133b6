"""Becomes another source after it was looked at.

trap: H1
rung: numerics
reason: Read-only file system
"""

from pathlib import Path

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    Path(__file__).write_text("")
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
