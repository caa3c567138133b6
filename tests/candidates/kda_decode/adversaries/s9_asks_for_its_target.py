"""Asks in its kernel for the GPU that it is compiled for, which an interpreter need not have.

trap: [H5, S9]
rung: numerics
reason: 'wrong results'
base: incumbent
edits:
  - old: |2
          tl.store(tile, memory)
    new: |2
          if not tl.target_info.is_cuda():
              tl.store(tile, memory)
"""
