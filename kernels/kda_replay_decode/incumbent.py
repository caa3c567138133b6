"""KDA decode with ReplaySSM: restore the state from checkpoint and ring, take the step of kda_decode, write once in L.

One program per tile of 32 state rows, each with its own norms, gate and division as in the engines' kernels. With L = 1
nothing is restored, and every step is that of kda_decode, operation by operation. Dots are IEEE unless `precision` says
otherwise: TF32 would cost 1e-3.
"""

import triton
import triton.language as tl

EPS = tl.constexpr(1e-6)


@triton.jit
def kda_replay_decode(
    q, k, v, a, b, A_log, dt_bias, state, ring_d, ring_k, ring_g, state_index, write_pos, force_flush, out,
    scale, lower_bound, K: tl.constexpr, V: tl.constexpr, L: tl.constexpr, LP: tl.constexpr, BV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One token of one head, BV rows of its state. Grid (V/BV, H, B). LP is L padded to the 16 that a dot needs."""
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
    rate = tl.exp(tl.load(A_log + head))
    if lower_bound is None:
        gate = -rate * (tl.maximum(raw, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(raw))))
    else:
        gate = lower_bound / (1.0 + tl.exp(-rate * raw))
    beta = 1.0 / (1.0 + tl.exp(-tl.load(b + row).to(tl.float32)))
    value = tl.load(v + row * V + rows).to(tl.float32)

    # 64-bit: slots * H * V * K passes 2^31 at 2048 slots of 64 heads.
    entry = tl.load(state_index + request).to(tl.int64) * heads + head
    position = tl.load(write_pos + request)
    tile = state + entry * (V * K) + rows[:, None] * K + cols[None, :]
    memory = tl.load(tile)
    if L > 1:
        at = tl.arange(0, LP)
        valid = at < position
        ring = (entry * L + at[:, None]) * K + cols[None, :]
        gates = tl.load(ring_g + ring, mask=valid[:, None], other=0.0)
        keys = tl.load(ring_k + ring, mask=valid[:, None], other=0.0)
        updates = tl.load(ring_d + (entry * L + at[None, :]) * V + rows[:, None], mask=valid[None, :], other=0.0)
        later = tl.cumsum(gates, axis=0, reverse=True) - gates
        memory = memory * tl.exp(tl.sum(gates, axis=0))[None, :]
        memory = tl.dot(updates, tl.exp(later) * keys, acc=memory, input_precision=PRECISION)

    memory = memory * tl.exp(gate)[None, :]
    update = beta * (value - tl.sum(memory * key[None, :], axis=1))
    memory += update[:, None] * key[None, :]
    tl.store(out + row * V + rows, tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty))
    if (position == L - 1) | (tl.load(force_flush + request) != 0):
        tl.store(tile, memory)
    else:
        newest = entry * L + position
        tl.store(ring_d + newest * V + rows, update)
        if tl.program_id(0) == 0:
            tl.store(ring_k + newest * K + cols, key)
            tl.store(ring_g + newest * K + cols, gate)


def run(
    q, k, v, a, b, A_log, dt_bias, state, ring_d, ring_k, ring_g, state_index, write_pos, force_flush, out, scale,
    lower_bound, *, BV=32, precision="ieee", num_warps=4, num_stages=3,
):  # fmt: skip
    """Shapes and dtypes: definition.yaml. Writes `out`, and updates states and rings in place."""
    requests, heads, K = q.shape
    V, L = v.shape[-1], ring_d.shape[2]
    kda_replay_decode[(V // BV, heads, requests)](
        q, k, v, a, b, A_log, dt_bias, state, ring_d, ring_k, ring_g, state_index, write_pos, force_flush, out,
        scale, lower_bound, K=K, V=V, L=L, LP=max(16, triton.next_power_of_2(L)), BV=BV,
        PRECISION=precision, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
