"""Lets the first program of a head compute the gate for the other three, without a launch between. In the order of
their numbers nobody would see it.

trap: [S5]
rung: numerics
reason: 'wrong results|not finite'
quick: true
base: incumbent
edits:
  - old: |-
      state, state_index, out, scale, lower_bound,
          K: tl
    new: |-
      state, state_index, out, shared, scale, lower_bound,
          K: tl
  - old: |2-
          beta = 1.0 /
    new: |2-
          if tl.program_id(0) == 0:
              tl.store(shared + row * K + cols, gate)
          gate = tl.load(shared + row * K + cols)
          beta = 1.0 /
  - old: |-
      state_index, out, scale, lower_bound,
              K=K
    new: |-
      state_index, out, scratch(q), scale, lower_bound,
              K=K
"""

import torch


def scratch(q):
    return torch.empty(q.shape, dtype=torch.float32, device=q.device)
