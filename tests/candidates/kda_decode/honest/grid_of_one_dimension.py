"""A grid of one dimension, whose programs find their tile by division.

quick: true
base: incumbent
edits:
  - old: |2
          head = tl.program_id(1)
          request = tl.program_id(2)
          heads = tl.num_programs(1)
          row = request * heads + head
    new: |2
          tiles: tl.constexpr = V // BV
          row = tl.program_id(0) // tiles
          head = row % heads
          request = row // heads
  - old: 'rows = tl.program_id(0) * BV'
    new: 'rows = (tl.program_id(0) % tiles) * BV'
  - old: |-
      scale, lower_bound,
          K: tl
    new: |-
      heads, scale, lower_bound,
          K: tl
  - old: |-
      state_index, out, scale, lower_bound,
              K=K
    new: |-
      state_index, out, heads, scale, lower_bound,
              K=K
  - old: 'kda_decode[(V // BV, heads, requests)]'
    new: 'kda_decode[(V // BV * heads * requests,)]'
"""
