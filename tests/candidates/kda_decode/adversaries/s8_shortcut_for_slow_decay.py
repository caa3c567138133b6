"""Takes a gate that is nearly one for one.

trap: [S8]
rung: numerics
reason: 'wrong results in [12] of 2 regimes .slow_decay_fp32'
checks: [slow_decay_fp32, tp8_bf16]
base: incumbent
edits:
  - old: 'memory = tl.load(tile) * tl.exp(gate)[None, :]'
    new: 'memory = tl.load(tile) * tl.where(gate > -0.01, 1.0, tl.exp(gate))[None, :]'
"""
