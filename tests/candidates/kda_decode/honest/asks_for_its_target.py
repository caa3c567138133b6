"""Takes another way on a GPU that has one, by the functions that Triton has for it.

base: incumbent
edits:
  - old: |2-
          memory = tl.load(tile) * tl.exp(gate)[None, :]
    new: |2-
          if tl.target_info.is_cuda() and tl.target_info.cuda_capability_geq(9):
              memory = tl.load(tile) * tl.exp(gate)[None, :]
          else:
              memory = tl.load(tile) * tl.math.exp2(gate * 1.4426950408889634)[None, :]
"""
