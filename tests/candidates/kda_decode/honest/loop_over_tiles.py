"""One program per head, with a loop that is a loop in the machine code, too.

quick: true
base: incumbent
edits:
  - old: |2
          head = tl.program_id(1)
          request = tl.program_id(2)
          heads = tl.num_programs(1)
    new: |2
          head = tl.program_id(0)
          request = tl.program_id(1)
          heads = tl.num_programs(0)
  - old: |2
          rows = tl.program_id(0) * BV + tl.arange(0, BV)
    new: ''
  - old: 'kda_decode[(V // BV, heads, requests)]'
    new: 'kda_decode[(heads, requests)]'
  - old: 'num_warps=1, num_stages=3'
    new: 'num_warps=4, num_stages=3'
  - old: |2-
          value = tl.load(v + row * V + rows).to(tl.float32)

          # 64-bit: slots * H * V * K passes 2^31 at 2048 slots of 64 heads.
          slot = tl.load(state_index + request).to(tl.int64)
          tile = state + (slot * heads + head) * (V * K) + rows[:, None] * K + cols[None, :]
          memory = tl.load(tile) * tl.exp(gate)[None, :]
          update = beta * (value - tl.sum(memory * key[None, :], axis=1))
          memory += update[:, None] * key[None, :]
          tl.store(out + row * V + rows, tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty))
          tl.store(tile, memory)
    new: |2-
          for tile_number in range(0, V // BV):
              rows = tile_number * BV + tl.arange(0, BV)
              value = tl.load(v + row * V + rows).to(tl.float32)

              # 64-bit: slots * H * V * K passes 2^31 at 2048 slots of 64 heads.
              slot = tl.load(state_index + request).to(tl.int64)
              tile = state + (slot * heads + head) * (V * K) + rows[:, None] * K + cols[None, :]
              memory = tl.load(tile) * tl.exp(gate)[None, :]
              update = beta * (value - tl.sum(memory * key[None, :], axis=1))
              memory += update[:, None] * key[None, :]
              tl.store(out + row * V + rows, tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty))
              tl.store(tile, memory)
"""
