"""Does the work only where it finds the NaN that a careful judge leaves in the output.

trap: [S10]
rung: numerics
reason: 'wrong results|differing'
quick: true
base: incumbent
edits:
  - old: |2
          tl.store(out + row * V + rows, tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty))
          tl.store(tile, memory)
    new: |2
          before = tl.load(out + row * V + rows)
          if tl.sum((before != before).to(tl.int32), axis=0) > 0:
              tl.store(out + row * V + rows, tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty))
              tl.store(tile, memory)
"""
