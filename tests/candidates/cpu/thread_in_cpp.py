"""A thread that Python does not know of.

trap: T2
rung: numerics
reason: SIGABRT.*Operation not permitted
"""

import ctypes
from pathlib import Path

from incumbent import run as honest

CPP = """
#include <thread>
extern "C" void start() { std::thread([] { volatile long x = 0; for (;;) x++; }).detach(); }
"""
_library = ctypes.CDLL(str(Path(__file__).with_suffix(".cpp.so")))


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    _library.start()
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
