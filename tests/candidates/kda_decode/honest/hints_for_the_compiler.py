"""Cache hints, promises about alignment, two stages, and a message for whoever debugs it.

base: incumbent
edits:
  - old: 'rows = tl.program_id(0) * BV + tl.arange(0, BV)'
    new: 'rows = tl.max_contiguous(tl.program_id(0) * BV + tl.arange(0, BV), BV)'
  - old: 'tl.load(tile) *'
    new: 'tl.load(tile, eviction_policy="evict_first") *'
  - old: 'tl.store(tile, memory)'
    new: 'tl.store(tile, memory, cache_modifier=".cs")'
  - old: 'num_stages=3'
    new: 'num_stages=2'
  - old: |2-
          slot = tl.load
    new: |2-
          tl.static_print("tile", BV)
          slot = tl.load
"""
