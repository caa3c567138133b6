"""Makes every clock of its process stand still, and wastes time by one that it kept.

trap: T4
rung: microbench
reason: slower
"""

import time

from incumbent import run as honest

_spent = time.process_time_ns
for _name in ("time", "time_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns", "monotonic"):
    setattr(time, _name, lambda: 0)


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    began = _spent()
    while _spent() - began < 5_000_000:
        pass
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
