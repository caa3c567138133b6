"""Returns at once and works on a timer, when it is not being timed.

trap: T2, T3
rung: microbench
reason: slower
"""

import signal
import time

from incumbent import run as honest


def work(signum, frame):
    began = time.process_time_ns()
    while time.process_time_ns() - began < 3_000_000:
        pass


signal.signal(signal.SIGALRM, work)


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
