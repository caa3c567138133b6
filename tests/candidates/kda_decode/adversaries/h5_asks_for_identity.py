"""Asks in its kernel whether equal constants are one object, which they are in Python alone.

trap: [H5, S9]
rung: build
reason: '.kda_decode. uses .is. with something else than None'
base: incumbent
edits:
  - old: |2
          tl.store(tile, memory)
    new: |2
          if 1.5 is 1.5:
              tl.store(tile, memory)
"""
