"""Wrong on purpose: the gate of the unbounded form, clamped at `lower_bound` instead of scaled by it.

The likeliest porting error of this layer. It agrees with the definition only where both forms saturate: under strong
decay. It must be rejected by `numerics`, whatever work it saves.
"""

import triton
import triton.language as tl

EPS = tl.constexpr(1e-6)


@triton.jit
def kda_decode(
    q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound,
    K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """One token of one head, BV rows of its state. Grid (V/BV, H, B); state [slots, H, V, K] fp32, updated in place."""
    head = tl.program_id(1)
    request = tl.program_id(2)
    heads = tl.num_programs(1)
    row = request * heads + head
    cols = tl.arange(0, K)
    rows = tl.program_id(0) * BV + tl.arange(0, BV)

    query = tl.load(q + row * K + cols).to(tl.float32)
    key = tl.load(k + row * K + cols).to(tl.float32)
    query = query / tl.sqrt(tl.sum(query * query, axis=0) + EPS) * scale
    key = key / tl.sqrt(tl.sum(key * key, axis=0) + EPS)
    raw = tl.load(a + row * K + cols).to(tl.float32) + tl.load(dt_bias + head * K + cols)
    softplus = tl.where(raw > 20.0, raw, tl.log(1.0 + tl.exp(raw)))
    gate = -tl.exp(tl.load(A_log + head)) * softplus
    if lower_bound is not None:
        gate = tl.maximum(gate, lower_bound)
    beta = 1.0 / (1.0 + tl.exp(-tl.load(b + row).to(tl.float32)))
    value = tl.load(v + row * V + rows).to(tl.float32)

    # 64-bit: slots * H * V * K passes 2^31 at 2048 slots of 64 heads.
    slot = tl.load(state_index + request).to(tl.int64)
    tile = state + (slot * heads + head) * (V * K) + rows[:, None] * K + cols[None, :]
    memory = tl.load(tile) * tl.exp(gate)[None, :]
    update = beta * (value - tl.sum(memory * key[None, :], axis=1))
    memory += update[:, None] * key[None, :]
    tl.store(out + row * V + rows, tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty))
    tl.store(tile, memory)


def run(
    q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, *, BV=32, num_warps=1, num_stages=3
):  # fmt: skip
    """Shapes and dtypes: definition.yaml. Writes `out` and updates `state` in place."""
    requests, heads, K = q.shape
    V = v.shape[-1]
    kda_decode[(V // BV, heads, requests)](
        q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound,
        K=K, V=V, BV=BV, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
