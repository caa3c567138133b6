"""Leaves out eps, which only small keys would show.

trap: [S8]
rung: numerics
reason: 'wrong results in 1 of 2 regimes .small_keys_fp32.'
checks: [small_keys_fp32, tp8_bf16]
quick: true
base: incumbent
edits:
  - old: 'tl.sqrt(tl.sum(key * key, axis=0) + EPS)'
    new: 'tl.sqrt(tl.sum(key * key, axis=0) + tl.where(tl.max(tl.abs(key), axis=0) > 0.01, EPS, 1e-9))'
"""
