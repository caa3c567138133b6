"""The incumbent without the mask along K where tiles divide K: fewer predicates around each load of the loop.

The mask stays where K is not a multiple of the tile.
"""

import triton
import triton.language as tl


@triton.jit
def w8a8_linear(
    x, x_scale, w, w_scale, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """A tile of out [M, N]. Grid (N/BN, M/BM), rounded up; x [M, K] and w [N, K] int8, scales fp32."""
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    # 64-bit: N * K passes 2^31 for the largest merged projections.
    left = x + rows[:, None].to(tl.int64) * K + inner[None, :]
    right = w + cols[None, :].to(tl.int64) * K + inner[:, None]
    total = tl.zeros([BM, BN], dtype=tl.int32)
    for start in range(0, K, BK):
        if WHOLE:
            tokens = tl.load(left + start, mask=(rows < M)[:, None], other=0)
            weights = tl.load(right + start, mask=(cols < N)[None, :], other=0)
        else:
            inside = inner < K - start
            tokens = tl.load(left + start, mask=(rows < M)[:, None] & inside[None, :], other=0)
            weights = tl.load(right + start, mask=(cols < N)[None, :] & inside[:, None], other=0)
        total = tl.dot(tokens, weights, total, out_dtype=tl.int32)
    per_token = tl.load(x_scale + rows, mask=rows < M, other=0.0)
    per_channel = tl.load(w_scale + cols, mask=cols < N, other=0.0)
    scaled = total.to(tl.float32) * per_token[:, None] * per_channel[None, :]
    at = out + rows[:, None].to(tl.int64) * N + cols[None, :]
    tl.store(at, scaled.to(out.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


def run(x, x_scale, w, w_scale, out, *, BN=128, BK=128, num_warps=4, num_stages=3):
    """Shapes and dtypes: definition.yaml. Writes `out`."""
    M, K = x.shape
    N = w.shape[0]
    BM = 16 if M <= 16 else 32 if M <= 32 else 64
    w8a8_linear[(triton.cdiv(N, BN), triton.cdiv(M, BM))](
        x, x_scale, w, w_scale, out, M, N, K,
        BM=BM, BN=BN, BK=BK, WHOLE=K % BK == 0, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
