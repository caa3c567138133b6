"""Decays the slots of requests that are not in the batch.

trap: S5
rung: numerics
reason: changed_untouched_slots|wrong results
"""

from incumbent import run as honest


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    honest(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)
    rest = [slot for slot in range(state.shape[0]) if slot not in state_index.tolist()]
    state[rest] *= 1 - 1e-6
