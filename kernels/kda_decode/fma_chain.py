"""The state tile as eight tensors [BV, 16] of 16 columns each, so that a row sum is one chain of fused multiply-adds.

On top of row_lanes.py: `tl.sum` adds in pairs, which leaves an addition per pair beside the multiplications; a chain over
eight tensors leaves none. The loads of the state come before anything that waits, so that they are in flight while norms
and gate are computed. Norms scale the sums instead of the vectors; a sigmoid is the square of one reciprocal square root,
which needs no range check; the gate is in powers of two.
"""

import triton
import triton.language as tl

EPS = tl.constexpr(1e-6)
LOG2E = tl.constexpr(1.4426950408889634)
CHUNK = tl.constexpr(16)


@triton.jit
def chunks(x):
    """[8, 16] as eight tensors [16], in order: no data moves between lanes."""
    halves = tl.permute(tl.reshape(x, [2, 2, 2, 16]), (3, 0, 1, 2))  # split takes the last axis
    even, odd = tl.split(halves)
    x04, x26 = tl.split(even)
    x15, x37 = tl.split(odd)
    x0, x4 = tl.split(x04)
    x1, x5 = tl.split(x15)
    x2, x6 = tl.split(x26)
    x3, x7 = tl.split(x37)
    return x0, x1, x2, x3, x4, x5, x6, x7


@triton.jit
def sigmoid_of_power(x):
    """1 / (1 + 2^-x). 2^-x may be infinite; the root is then 0."""
    root = tl.rsqrt(1.0 + tl.exp2(-x))
    return root * root


@triton.jit
def kda_decode(
    q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound,
    K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """One token of one head, BV rows of its state. Grid (V/BV, H, B); state [slots, H, V, K] fp32, updated in place."""
    tl.static_assert(K == 8 * CHUNK)
    head = tl.program_id(1)
    request = tl.program_id(2)
    heads = tl.num_programs(1)
    row = request * heads + head
    cols = tl.arange(0, K // CHUNK)[:, None] * CHUNK + tl.arange(0, CHUNK)[None, :]
    rows = tl.program_id(0) * BV + tl.arange(0, BV)

    slot = tl.load(state_index + request).to(
        tl.int64
    )  # 64-bit: slots * H * V * K passes 2^31 at 2048 slots of 64 heads
    query = tl.load(q + row * K + cols).to(tl.float32)
    key = tl.load(k + row * K + cols).to(tl.float32)
    raw = tl.load(a + row * K + cols).to(tl.float32) + tl.load(dt_bias + head * K + cols)
    rate = tl.load(A_log + head)
    strength = tl.load(b + row).to(tl.float32)
    value = tl.load(v + row * V + rows).to(tl.float32)
    tile = state + (slot * heads + head) * (V * K) + rows[:, None] * K + tl.arange(0, CHUNK)[None, :]
    memory = ()
    for i in tl.static_range(8):
        memory = memory + (tl.load(tile + i * CHUNK),)

    query_scale = tl.rsqrt(tl.sum(query * query) + EPS) * scale
    key_scale = tl.rsqrt(tl.sum(key * key) + EPS)
    rate = tl.exp2(rate * LOG2E)
    if lower_bound is None:
        decay = tl.exp(-rate * (tl.maximum(raw, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(raw)))))
    else:
        # log2(e) in figures: the interpreter takes no constexpr times a number.
        decay = tl.exp2(lower_bound * 1.4426950408889634 * sigmoid_of_power(rate * LOG2E * raw))
    beta = sigmoid_of_power(strength * LOG2E) * key_scale

    keys, decays = chunks(key), chunks(decay)
    known = tl.zeros([BV, CHUNK], tl.float32)
    decayed = ()
    for i in tl.static_range(8):
        decayed = decayed + (memory[i] * decays[i][None, :],)
        known += decayed[i] * keys[i][None, :]
    update = beta * (value - key_scale * tl.sum(known, axis=1))
    queries = chunks(query)  # not earlier: it would hold 32 registers meanwhile
    found = tl.zeros([BV, CHUNK], tl.float32)
    for i in tl.static_range(8):
        new = decayed[i] + update[:, None] * keys[i][None, :]
        found += new * queries[i][None, :]
        tl.store(tile + i * CHUNK, new)
    tl.store(out + row * V + rows, (query_scale * tl.sum(found, axis=1)).to(out.dtype.element_ty))


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
