"""Edits the package that the reference uses.

trap: H6
rung: numerics
reason: Read-only file system|Permission denied|No such file
"""

from pathlib import Path

import torch
from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    Path(torch.__file__).open("a").close()
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
