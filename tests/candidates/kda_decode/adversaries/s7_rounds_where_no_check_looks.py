"""Works in bf16 at batches that are never checked.

trap: [S7, H11]
rung: numerics
reason: 'results at tp8_b8 are covered by no check: .* constexpr LOW'
outcome: INCONCLUSIVE
base: incumbent
edits:
  - old: |-
      BV: tl.constexpr,
      ):
    new: |-
      BV: tl.constexpr, LOW: tl.constexpr,
      ):
  - old: |2-
          memory = tl.load(tile) *
    new: |2-
          kept = tl.load(tile)
          if LOW:
              kept = kept.to(tl.bfloat16).to(tl.float32)
          memory = kept *
  - old: 'K=K, V=V, BV=BV,'
    new: 'K=K, V=V, BV=BV, LOW=requests >= 8,'
"""
