"""Looks for answers in the files of the machine.

trap: H7
rung: numerics
reason: No such file
"""

from pathlib import Path

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    Path("/etc/passwd").read_text()
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
