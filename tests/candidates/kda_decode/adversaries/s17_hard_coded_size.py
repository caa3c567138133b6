"""Is right for eight heads.

trap: [S17]
rung: numerics
reason: 'outside of its buffers|wrong results'
base: incumbent
edits:
  - old: 'heads = tl.num_programs(1)'
    new: 'heads = 8'
"""
