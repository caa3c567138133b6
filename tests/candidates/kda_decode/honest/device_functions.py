"""Device functions with default values, one of them reached through another.

quick: true
base: incumbent
edits:
  - old: |-
      @triton.jit
      def kda_decode(
    new: |-
      @triton.jit
      def sigmoid(x, one: tl.constexpr = 1.0):
          return one / (one + tl.exp(-x))


      @triton.jit
      def squares(x):
          return tl.sum(x * x, axis=0)


      @triton.jit
      def normalised(x, eps=EPS):
          return x / tl.sqrt(squares(x) + eps)


      @triton.jit
      def kda_decode(
  - old: 'query / tl.sqrt(tl.sum(query * query, axis=0) + EPS) * scale'
    new: 'normalised(query) * scale'
  - old: 'key = key / tl.sqrt(tl.sum(key * key, axis=0) + EPS)'
    new: 'key = normalised(key)'
  - old: '1.0 / (1.0 + tl.exp(-tl.load(b + row).to(tl.float32)))'
    new: 'sigmoid(tl.load(b + row).to(tl.float32))'
"""
