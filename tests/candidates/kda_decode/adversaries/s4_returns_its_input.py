"""Writes its input `v` as the output.

trap: [S4]
rung: numerics
reason: 'wrong results in 2 of 2 regimes'
base: incumbent
edits:
  - old: 'tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty)'
    new: 'value.to(out.dtype.element_ty)'
"""
