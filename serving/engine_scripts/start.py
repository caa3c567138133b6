"""Becomes an SGLang server that dies with its owner, however the owner dies.

python -I start.py OWNER_PID PYTHON [arguments]

A process of its own rather than code between fork and exec of the owner, which may have threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

owner, command = int(sys.argv[1]), sys.argv[2:]
if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
    sys.exit(f"cannot tie the engine to its owner: {os.strerror(ctypes.get_errno())}")
if os.getppid() != owner:
    sys.exit("the owner is gone already")
# The owner holds these back while it starts us, and a blocked signal stays blocked across exec.
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
os.execv(command[0], command)
