"""A tile that a heuristic chooses, an option of `jit`, and defaults of the kernel.

base: incumbent
edits:
  - old: |
      @triton.jit
    new: |
      @triton.heuristics({"BV": lambda arguments: min(32, arguments["V"])})
      @triton.jit(do_not_specialize=["scale"])
  - old: 'K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr,'
    new: 'K: tl.constexpr = 128, V: tl.constexpr = 128, BV: tl.constexpr = 16,'
  - old: '*, BV=32, num_warps'
    new: '*, num_warps'
  - old: '(V // BV, heads, requests)'
    new: 'lambda meta: (V // meta["BV"], heads, requests)'
  - old: 'K=K, V=V, BV=BV,'
    new: 'K=K, V=V,'
"""
