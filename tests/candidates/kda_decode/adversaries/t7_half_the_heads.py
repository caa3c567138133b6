"""Leaves out half of the heads wherever there are as many as in production.

trap: [T7, S17]
rung: numerics
reason: 'wrong results in 1 of 2 regimes .tp8_bf16.'
base: incumbent
edits:
  - old: 'kda_decode[(V // BV, heads, requests)]'
    new: 'kda_decode[(V // BV, heads if heads < 8 else heads // 2, requests)]'
"""
