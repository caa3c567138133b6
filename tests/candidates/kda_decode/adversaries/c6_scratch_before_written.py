"""Adds to scratch memory that nobody has cleared.

trap: [C6]
rung: numerics
reason: 'not finite'
base: incumbent
edits:
  - old: |-
      state, state_index, out, scale, lower_bound,
          K: tl
    new: |-
      state, state_index, out, total, scale, lower_bound,
          K: tl
  - old: |2-
          tl.store(out + row * V + rows, tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty))
    new: |2-
          tl.atomic_add(total + row * V + rows, tl.sum(memory * query[None, :], axis=1))
          tl.store(out + row * V + rows, tl.load(total + row * V + rows).to(out.dtype.element_ty))
  - old: |-
      state_index, out, scale, lower_bound,
              K=K
    new: |-
      state_index, out, scratch(out), scale, lower_bound,
              K=K
"""

import torch


def scratch(out):
    return torch.empty(out.shape, dtype=torch.float32, device=out.device)
