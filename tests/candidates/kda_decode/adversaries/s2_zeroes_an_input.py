"""Zeroes an input that it was given, so that a later answer would agree.

trap: [S2]
rung: numerics
reason: 'the input .q. was changed'
quick: true
base: incumbent
edits:
  - old: |2
          tl.store(tile, memory)
    new: |2
          tl.store(tile, memory)
          tl.store(q + row * K + cols, cols * 0.0)
"""
