"""Keeps its answers on the device and gives them again. Scratch memory holds other poison before every call.

trap: [C5]
rung: numerics
reason: 'wrong results'
base: incumbent
edits:
  - old: |-
      state, state_index, out, scale, lower_bound,
          K: tl
    new: |-
      state, state_index, out, memo, scale, lower_bound,
          K: tl
  - old: 'tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty))'
    new: 'known)'
  - old: |2-
          tl.store(out + row * V + rows, known
    new: |2-
          kept = memo + row * V + rows
          known = tl.load(kept)
          if tl.sum((known == known).to(tl.int32), axis=0) < BV:
              known = tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty)
              tl.store(kept, known)
          tl.store(out + row * V + rows, known
  - old: |-
      state_index, out, scale, lower_bound,
              K=K
    new: |-
      state_index, out, memo(out), scale, lower_bound,
              K=K
"""

import torch

MEMO = {}


def memo(out):
    return MEMO.setdefault((out.shape, out.dtype), torch.empty(out.shape, dtype=out.dtype, device=out.device))
