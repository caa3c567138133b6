"""Reads far behind the end of a tensor, which happens to be fast.

trap: [S5]
rung: numerics
reason: '.kda_decode. reads memory outside of its buffers'
quick: true
base: incumbent
edits:
  - old: 'tl.load(b + row)'
    new: 'tl.load(b + row + 100000000)'
"""
