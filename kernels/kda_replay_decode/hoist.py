"""Norms, gate and the ring's ages once per head, in a prologue kernel; a tile only replays, steps and stores.

In the incumbent the V/BV programs of a head repeat both norms, the gate, and L rows of exponentials. Here they load the
results: 4 + L more fp32 rows of K per head move through L2, and one more kernel is launched.
"""

import torch
import triton
import triton.language as tl

EPS = tl.constexpr(1e-6)


@triton.jit
def prologue(
    q, k, a, b, A_log, dt_bias, ring_k, ring_g, state_index, write_pos, force_flush, query_out, key_out, decay_out,
    beta_out, faded_out, aged_out, scale, lower_bound, K: tl.constexpr, L: tl.constexpr, LP: tl.constexpr,
):  # fmt: skip
    """One head's share of a step that no state row changes. Grid (H, B).

    Normalised q (scaled) and k, exp(gate), beta; what the checkpoint fades by, and the ring's keys, decayed up to now. Stores
    k and the gate in the ring unless the step flushes.
    """
    head = tl.program_id(0)
    request = tl.program_id(1)
    heads = tl.num_programs(0)
    row = request * heads + head
    cols = tl.arange(0, K)
    query = tl.load(q + row * K + cols).to(tl.float32)
    key = tl.load(k + row * K + cols).to(tl.float32)
    key = key / tl.sqrt(tl.sum(key * key, axis=0) + EPS)
    raw = tl.load(a + row * K + cols).to(tl.float32) + tl.load(dt_bias + head * K + cols)
    rate = tl.exp(tl.load(A_log + head))
    if lower_bound is None:
        gate = -rate * (tl.maximum(raw, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(raw))))
    else:
        gate = lower_bound / (1.0 + tl.exp(-rate * raw))
    tl.store(query_out + row * K + cols, query / tl.sqrt(tl.sum(query * query, axis=0) + EPS) * scale)
    tl.store(key_out + row * K + cols, key)
    tl.store(decay_out + row * K + cols, tl.exp(gate))
    tl.store(beta_out + row, 1.0 / (1.0 + tl.exp(-tl.load(b + row).to(tl.float32))))

    entry = tl.load(state_index + request).to(tl.int64) * heads + head
    position = tl.load(write_pos + request)
    if L > 1:
        at = tl.arange(0, LP)
        valid = at < position
        ring = (entry * L + at[:, None]) * K + cols[None, :]
        gates = tl.load(ring_g + ring, mask=valid[:, None], other=0.0)
        keys = tl.load(ring_k + ring, mask=valid[:, None], other=0.0)
        later = tl.cumsum(gates, axis=0, reverse=True) - gates
        tl.store(faded_out + row * K + cols, tl.exp(tl.sum(gates, axis=0)))
        tl.store(aged_out + (row * LP + at[:, None]) * K + cols[None, :], tl.exp(later) * keys)
    if (position != L - 1) & (tl.load(force_flush + request) == 0):
        newest = entry * L + position
        tl.store(ring_k + newest * K + cols, key)
        tl.store(ring_g + newest * K + cols, gate)


@triton.jit
def update_state(
    query, key, decay, beta, faded, aged, v, state, ring_d, state_index, write_pos, force_flush, out,
    K: tl.constexpr, V: tl.constexpr, L: tl.constexpr, LP: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """BV rows of the state of one head. Grid (V/BV, H, B)."""
    head = tl.program_id(1)
    request = tl.program_id(2)
    heads = tl.num_programs(1)
    row = request * heads + head
    cols = tl.arange(0, K)
    rows = tl.program_id(0) * BV + tl.arange(0, BV)
    key_row = tl.load(key + row * K + cols)
    query_row = tl.load(query + row * K + cols)
    value = tl.load(v + row * V + rows).to(tl.float32)

    # 64-bit: slots * H * V * K passes 2^31 at 2048 slots of 64 heads.
    entry = tl.load(state_index + request).to(tl.int64) * heads + head
    position = tl.load(write_pos + request)
    tile = state + entry * (V * K) + rows[:, None] * K + cols[None, :]
    memory = tl.load(tile)
    if L > 1:
        at = tl.arange(0, LP)
        updates = tl.load(
            ring_d + (entry * L + at[None, :]) * V + rows[:, None], mask=(at < position)[None, :], other=0.0
        )
        keys = tl.load(aged + (row * LP + at[:, None]) * K + cols[None, :])
        memory = memory * tl.load(faded + row * K + cols)[None, :]
        memory = tl.dot(updates, keys, acc=memory, input_precision="ieee")
    memory = memory * tl.load(decay + row * K + cols)[None, :]
    update = tl.load(beta + row) * (value - tl.sum(memory * key_row[None, :], axis=1))
    memory += update[:, None] * key_row[None, :]
    tl.store(out + row * V + rows, tl.sum(memory * query_row[None, :], axis=1).to(out.dtype.element_ty))
    if (position == L - 1) | (tl.load(force_flush + request) != 0):
        tl.store(tile, memory)
    else:
        tl.store(ring_d + (entry * L + position) * V + rows, update)


def run(
    q, k, v, a, b, A_log, dt_bias, state, ring_d, ring_k, ring_g, state_index, write_pos, force_flush, out, scale,
    lower_bound, *, BV=32, num_warps=4, num_stages=3,
):  # fmt: skip
    """Shapes and dtypes: definition.yaml. Writes `out`, and updates states and rings in place."""
    requests, heads, K = q.shape
    V, L = v.shape[-1], ring_d.shape[2]
    LP = max(16, triton.next_power_of_2(L))

    def scratch(*shape):
        return torch.empty(shape, dtype=torch.float32, device=q.device)

    query, key, decay, faded = (scratch(requests, heads, K) for _ in range(4))
    beta, aged = scratch(requests, heads), scratch(requests, heads, LP, K)
    prologue[(heads, requests)](
        q, k, a, b, A_log, dt_bias, ring_k, ring_g, state_index, write_pos, force_flush, query, key, decay, beta,
        faded, aged, scale, lower_bound, K=K, L=L, LP=LP, num_warps=4,
    )  # fmt: skip
    update_state[(V // BV, heads, requests)](
        query, key, decay, beta, faded, aged, v, state, ring_d, state_index, write_pos, force_flush, out,
        K=K, V=V, L=L, LP=LP, BV=BV, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
