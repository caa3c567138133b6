"""Rounds the state to bf16 on the way.

trap: [S6]
rung: numerics
reason: 'state_rel_error 0.00'
quick: true
base: incumbent
edits:
  - old: 'memory = tl.load(tile) * tl.exp(gate)[None, :]'
    new: 'memory = tl.load(tile).to(tl.bfloat16).to(tl.float32) * tl.exp(gate)[None, :]'
"""
