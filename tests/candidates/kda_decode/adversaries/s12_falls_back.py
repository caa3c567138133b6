"""Tries a kernel that does not compile, and falls back to torch.

trap: [S12]
rung: build
reason: 'no_such_name is not defined'
base: incumbent
edits:
  - old: 'tl.load(b + row)'
    new: 'tl.load(b + row + no_such_name)'
"""


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    try:
        honest_run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch)
    except Exception:
        out.copy_(v)
