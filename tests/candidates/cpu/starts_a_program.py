"""Asks a program of the system to work.

trap: T2, H5
rung: numerics
reason: PermissionError.*not permitted
"""

import subprocess

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    subprocess.run(["true"], check=True)
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
