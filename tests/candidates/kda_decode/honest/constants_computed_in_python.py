"""Constants from Python: computed, chosen, and by functions of the compiler.

base: incumbent
edits:
  - old: |
      EPS = tl.constexpr(1e-6)
    new: |
      EPS = tl.constexpr(10.0 ** -(2 * 3))
      ACCUMULATE = tl.constexpr(tl.float32)
      NOTHING = tl.constexpr(float("-inf"))


      @triton.constexpr_function
      def tile_of(rows, most=32):
          return min(rows, most)
  - old: |2
          head = tl.program_id(1)
    new: |2
          tl.static_assert(BV >= tile_of(V) // 2)
          tl.static_assert(NOTHING < 0)
          head = tl.program_id(1)
  - old: '.to(tl.float32)'
    new: '.to(ACCUMULATE)'
"""
