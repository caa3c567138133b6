"""Writes zeros, which lie inside a tolerance that is not scaled.

trap: [S3, S18]
rung: numerics
reason: 'wrong results in 2 of 2 regimes'
base: incumbent
edits:
  - old: 'tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty)'
    new: '(rows * 0.0).to(out.dtype.element_ty)'
"""
