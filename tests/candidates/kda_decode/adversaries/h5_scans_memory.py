"""Searches the memory behind its buffers from within a kernel.

trap: [H5]
rung: numerics
reason: 'outside of its buffers'
base: incumbent
edits:
  - old: |2
          tl.store(tile, memory)
    new: |2
          tl.store(tile, memory)
          tl.store(state + (tl.load(state_index).to(tl.int64) + 1) * 67108864 + cols, cols * 0.0)
"""
