"""The state tile as [K/chunk, BV, chunk], so that a row is spread over chunk/4 lanes of a warp instead of all 32.

In the incumbent each of the 64 row sums of a program takes five shuffles and five additions. With 16 columns to a chunk
four lanes share a row: most of a sum happens in the registers of one lane, and two shuffles end it. Loads and stores stay
16 bytes wide, and touch whole sectors of 32 bytes. Norms multiply by a reciprocal square root, as in reciprocal.py.
"""

import triton
import triton.language as tl

EPS = tl.constexpr(1e-6)


@triton.jit
def kda_decode(
    q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound,
    K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """One token of one head, BV rows of its state. Grid (V/BV, H, B); state [slots, H, V, K] fp32, updated in place."""
    head = tl.program_id(1)
    request = tl.program_id(2)
    heads = tl.num_programs(1)
    row = request * heads + head
    cols = tl.arange(0, K // CHUNK)[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    rows = tl.program_id(0) * BV + tl.arange(0, BV)

    query = tl.load(q + row * K + cols).to(tl.float32)
    key = tl.load(k + row * K + cols).to(tl.float32)
    query = query * (tl.rsqrt(tl.sum(query * query) + EPS) * scale)
    key = key * tl.rsqrt(tl.sum(key * key) + EPS)
    raw = tl.load(a + row * K + cols).to(tl.float32) + tl.load(dt_bias + head * K + cols)
    rate = tl.exp(tl.load(A_log + head))
    if lower_bound is None:
        gate = -rate * (tl.maximum(raw, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(raw))))
    else:
        gate = lower_bound / (1.0 + tl.exp(-rate * raw))
    beta = 1.0 / (1.0 + tl.exp(-tl.load(b + row).to(tl.float32)))
    value = tl.load(v + row * V + rows).to(tl.float32)

    # 64-bit: slots * H * V * K passes 2^31 at 2048 slots of 64 heads.
    slot = tl.load(state_index + request).to(tl.int64)
    tile = state + (slot * heads + head) * (V * K) + rows[None, :, None] * K + cols[:, None, :]
    memory = tl.load(tile) * tl.exp(gate)[:, None, :]
    update = beta * (value - tl.sum(tl.sum(memory * key[:, None, :], axis=0), axis=1))
    memory += update[None, :, None] * key[:, None, :]
    result = tl.sum(tl.sum(memory * query[:, None, :], axis=0), axis=1)
    tl.store(out + row * V + rows, result.to(out.dtype.element_ty))
    tl.store(tile, memory)


def run(
    q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound,
    *, BV=32, CHUNK=16, num_warps=1, num_stages=3,
):  # fmt: skip
    """Shapes and dtypes: definition.yaml. Writes `out` and updates `state` in place."""
    requests, heads, K = q.shape
    V = v.shape[-1]
    kda_decode[(V // BV, heads, requests)](
        q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound,
        K=K, V=V, BV=BV, CHUNK=CHUNK, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
