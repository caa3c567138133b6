"""Launches a kernel that does all the work and stores no output.

trap: [S1]
rung: numerics
reason: 'out_rel_error not finite'
base: incumbent
edits:
  - old: |2
          tl.store(out + row * V + rows, tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty))
    new: ''
"""
