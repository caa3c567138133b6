"""Rows and columns as matrices with one row, reduced along the other axis.

base: incumbent
edits:
  - old: |2
          cols = tl.arange(0, K)
    new: |2
          cols = tl.arange(0, K)[None, :]
  - old: 'tl.sum(query * query, axis=0)'
    new: 'tl.sum(query * query, axis=1)[:, None]'
  - old: 'tl.sum(key * key, axis=0)'
    new: 'tl.sum(key * key, axis=1)[:, None]'
  - old: 'cols[None, :]'
    new: 'cols'
  - old: 'tl.exp(gate)[None, :]'
    new: 'tl.exp(gate)'
  - old: 'key[None, :]'
    new: 'key'
  - old: 'query[None, :]'
    new: 'query'
"""
