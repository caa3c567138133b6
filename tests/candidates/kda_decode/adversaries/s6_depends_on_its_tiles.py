"""Gives other bits with other tiles, which no tolerance shows.

trap: [S6]
rung: numerics
reason: 'differing_elements'
base: incumbent
edits:
  - old: 'beta = 1.0 / ('
    new: 'beta = (1.0 + 1e-7 * (BV // 64)) / ('
"""
