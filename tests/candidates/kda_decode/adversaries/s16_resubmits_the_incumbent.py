"""Is the incumbent under other names.

trap: [S16]
rung: static
reason: 'no change: the same machine code in the same grids as the incumbent'
base: incumbent
edits:
  - old: 'memory'
    new: 'tile_of_state'
  - old: 'query'
    new: 'normalised_query'
"""
