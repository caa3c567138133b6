"""Asks in its kernel whether it is compiled or interpreted.

trap: [H5, S9]
rung: build
reason: '.kda_decode. uses .hasattr., which no kernel needs'
base: incumbent
edits:
  - old: |2
          tl.store(tile, memory)
    new: |2
          if not hasattr(BV, "value"):
              tl.store(tile, memory)
"""
