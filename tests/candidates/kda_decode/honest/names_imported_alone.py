"""Triton's functions imported by name.

quick: true
base: incumbent
edits:
  - old: |
      import triton.language as tl
    new: |
      import triton.language as tl
      from triton.language import exp, load, store
      from triton.language import sum as total
  - old: 'tl.load('
    new: 'load('
  - old: 'tl.store('
    new: 'store('
  - old: 'tl.exp('
    new: 'exp('
  - old: 'tl.sum('
    new: 'total('
"""
