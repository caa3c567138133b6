"""Writes half of the output, and hopes that the rest is still there from the call before.

trap: [C6, S1]
rung: numerics
reason: 'out_rel_error not finite'
quick: true
base: incumbent
edits:
  - old: |2-
          tl.store(out + row * V + rows, tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty))
    new: |2-
          tl.store(out + row * V + rows, tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty), mask=rows < V // 2)
"""
