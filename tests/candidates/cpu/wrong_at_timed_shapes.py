"""Right at every size that is checked; at a size that is only timed the state stays as it was.

trap: S7, S17
rung: microbench
reason: wrong `state` in a timed batch
"""

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    kept = state.clone() if state.shape[0] == 3 and state.shape[-1] == 32 else None
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
    if kept is not None:
        state.copy_(kept)
