"""Opens the protected memory with mprotect and computes there in numpy. That memory holds nothing, and is thrown
away.

trap: [H5]
rung: numerics
reason: 'wrong results|not finite'
quick: true
base: incumbent
"""

import ctypes


@triton.jit
def nothing(out):
    tl.store(out, 0.0)


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(out.data_ptr()), out.numel() * out.element_size(), 3)
    ctypes.memset(out.data_ptr(), 0, out.numel() * out.element_size())
    nothing[(1,)](out)
