"""Takes a fingerprint of a window of its input and skips the work if it has seen it.

trap: [C2]
rung: build
reason: 'touched tensor data outside a kernel'
base: incumbent
"""

import hashlib

SEEN = set()


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    print_of = hashlib.sha256(q.view(-1).view(dtype=__import__("torch").uint8).numpy()[:64].tobytes()).digest()
    if print_of not in SEEN:
        honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
    SEEN.add(print_of)
