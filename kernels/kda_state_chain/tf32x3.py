"""The chain in tf32x3: each operand as two tf32 numbers, three tensor-core products instead of one. The published repair."""

import torch
import triton
import triton.language as tl

PRECISION = tl.constexpr("tf32x3")


@triton.jit
def halves(x):
    """Upper and lower half of the rows of x [n, m]."""
    apart = tl.reshape(x, (2, x.shape[0] // 2, x.shape[1]))
    return tl.split(tl.permute(apart, (1, 2, 0)))


@triton.jit
def advance(M, x, K: tl.constexpr):
    """M x for M [K, K] in memory and x [K, n]. In four parts along K: one FFMA dot over 128 would spill kilobytes."""
    rows = tl.arange(0, K)
    part = rows[:, None] * K + tl.arange(0, K // 4)[None, :]
    upper, lower = halves(x)
    first, second = halves(upper)
    third, fourth = halves(lower)
    found = tl.dot(tl.load(M + part), first, input_precision=PRECISION)
    found = tl.dot(tl.load(M + part + K // 4), second, found, input_precision=PRECISION)
    found = tl.dot(tl.load(M + part + K // 2), third, found, input_precision=PRECISION)
    return tl.dot(tl.load(M + part + 3 * (K // 4)), fourth, found, input_precision=PRECISION)


@triton.jit(do_not_specialize=["chunks"])
def local_chain(M, B, state, local_state, local_M, chunks, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr):
    """The chunks of one rank, from a state of zero and from the identity. Grid (tiles of V, then of K; H; ranks).

    M [H, C, K, K], B [H, C, K, V]; local_state [H, ranks, K, V], local_M [H, ranks, K, K]; all fp32. A single rank
    writes `state` [H, K, V] itself. The first rank's transition would meet a state of zero, so it is not computed.
    """
    tile = tl.program_id(0)
    head = tl.program_id(1)
    rank = tl.program_id(2)
    ranks = tl.num_programs(2)
    rows = tl.arange(0, K)
    # 64-bit: H * C * K * K passes 2^31 at 64 heads of 131,072 tokens.
    first = (head * ranks + rank).to(tl.int64) * chunks
    if tile < V // BV:
        wide = rows[:, None] * V + tile * BV + tl.arange(0, BV)[None, :]
        x = tl.load(B + first * (K * V) + wide)
        for chunk in range(1, chunks):
            x = advance(M + (first + chunk) * (K * K), x, K) + tl.load(B + (first + chunk) * (K * V) + wide)
        if ranks == 1:
            tl.store(state + head * (K * V) + wide, x)
        else:
            tl.store(local_state + (head * ranks + rank) * (K * V) + wide, x)
    elif rank > 0:
        narrow = rows[:, None] * K + (tile - V // BV) * BV + tl.arange(0, BV)[None, :]
        x = tl.load(M + first * (K * K) + narrow)
        for chunk in range(1, chunks):
            x = advance(M + (first + chunk) * (K * K), x, K)
        tl.store(local_M + (head * ranks + rank) * (K * K) + narrow, x)


@triton.jit(do_not_specialize=["ranks"])
def merge(local_state, local_M, state, ranks, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr):
    """S <- M_r S + S_r over the ranks. Grid (V/BV, H); shapes as in `local_chain`."""
    head = tl.program_id(1)
    wide = tl.arange(0, K)[:, None] * V + tl.program_id(0) * BV + tl.arange(0, BV)[None, :]
    first = head * ranks
    x = tl.load(local_state + first * (K * V) + wide)
    for rank in range(1, ranks):
        x = advance(local_M + (first + rank) * (K * K), x, K) + tl.load(local_state + (first + rank) * (K * V) + wide)
    tl.store(state + head * (K * V) + wide, x)


def run(M, B, state, ranks, *, BV=32, num_warps=8, num_stages=3):
    """Shapes and dtypes: definition.yaml. Writes `state`; `ranks` divides the number of chunks."""
    heads, chunks, K, V = B.shape
    tiles = V // BV if ranks == 1 else (V + K) // BV
    local_state, local_M = (torch.empty(heads, ranks, K, n, dtype=torch.float32, device=B.device) for n in (V, K))
    options = {"K": K, "V": V, "BV": BV, "num_warps": num_warps, "num_stages": num_stages}
    local_chain[(tiles, heads, ranks)](M, B, state, local_state, local_M, chunks // ranks, **options)
    if ranks > 1:
        merge[(V // BV, heads)](local_state, local_M, state, ranks, **options)
