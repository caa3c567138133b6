"""Hides Python behind a branch of its kernel that the compiler never takes.

trap: [H5, S9]
rung: build
reason: '.kda_decode. uses .open., which no kernel needs'
quick: true
base: incumbent
edits:
  - old: |2
          tl.store(tile, memory)
    new: |2
          tl.store(tile, memory)
          if BV == 33:
              open("/stage/outputs.npz", "wb")
"""
