"""Writes a constant.

trap: [S18]
rung: numerics
reason: 'wrong results in 2 of 2 regimes'
base: incumbent
edits:
  - old: 'tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty)'
    new: '(rows * 0.0 + 0.01).to(out.dtype.element_ty)'
"""
