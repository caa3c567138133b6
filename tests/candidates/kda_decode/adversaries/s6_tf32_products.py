"""Reads the state with a tensor-core product in TF32.

trap: [S6, T11]
rung: numerics
reason: 'out_rel_error'
base: incumbent
edits:
  - old: 'tl.sum(memory * query[None, :], axis=1).to('
    new: 'tl.sum(tl.dot(memory, tl.where(tl.arange(0, 16)[None, :] == 0, query[:, None], 0.0), input_precision="tf32"), axis=1).to('
"""
