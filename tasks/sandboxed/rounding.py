"""Makes the Triton interpreter round like a GPU, and shows that it does.

Unpatched it truncates fp32 to bf16, loses the mantissa carry into fp8, and computes tf32 dots in plain fp32. This
replaces private functions of one Triton version: `self_test` must pass before anything interpreted is believed.
"""

# mypy: ignore-errors

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

_FLOATS = {
    "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32,
    "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2,
}  # fmt: skip
_E4M3_MAX = 448.0
_MMA_K = 8
_INTS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
_unpatched_convert = interpreter._convert_float
_unpatched_dot = interpreter.InterpreterBuilder.create_dot


def _convert_float(values, source, target, rounding):
    nearest = rounding is None or rounding == interpreter._ir.ROUNDING_MODE.RTNE
    if not nearest or source.name not in _FLOATS or target.name not in _FLOATS:
        return _unpatched_convert(values, source, target, rounding)
    bits = torch.from_numpy(
        np.array(values, copy=True, order="C").view(f"i{values.itemsize}" if values.itemsize > 1 else "u1")
    )
    wide = bits.view(_FLOATS[source.name]).float()
    if target.name == "fp8e4nv":  # cvt.rn.satfinite
        wide = torch.where(wide.isfinite(), wide.clamp(-_E4M3_MAX, _E4M3_MAX), wide)
    narrow = wide.to(_FLOATS[target.name])
    size = narrow.element_size()
    return narrow.contiguous().view(_INTS[size]).numpy().view(f"u{size}").reshape(values.shape)


def _truncate(x):
    """mma ignores the low 13 bits of fp32 operands."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def _round_away(x):
    """cvt.rna.tf32.f32: nearest, ties away from zero."""
    bits = x.view(torch.int32)
    finite = (bits & 0x7F800000) != 0x7F800000
    return torch.where(finite, (bits + 0x1000) & ~0x1FFF, bits).view(torch.float32)


def _nearest(a, b, total):
    """Exact products, one rounding to fp32, then one to add `total`: the best that an accumulator can do."""
    return total + (a.double() @ b.double()).float()


def _toward_zero(a, b, total):
    """Products of a block of 8 along K exact, each block added to an fp32 accumulator that cuts off: the worst."""
    for k in range(0, a.shape[1], _MMA_K):
        exact = total.double() + a[:, k : k + _MMA_K].double() @ b[k : k + _MMA_K].double()
        near = exact.float()
        beyond = near.double().abs() > exact.abs()
        total = torch.where(beyond, torch.nextafter(near, torch.zeros_like(near)), near)
    return total


def assume(tensor_cores):
    """Which hardware tf32 dots are computed for from now on: None (cut operands, sum to nearest) or one departure."""
    global _mma, _tf32_operand
    _mma = _toward_zero if tensor_cores == "toward_zero" else _nearest
    _tf32_operand = _round_away if tensor_cores == "round_operands" else _truncate


_mma, _tf32_operand = _nearest, _truncate


def _create_dot(self, a, b, d, precision, max_imprecise):
    name = str(precision).rsplit(".", 1)[-1].lower()
    if a.dtype.scalar != tl.float32 or b.dtype.scalar != tl.float32 or name not in ("tf32", "tf32x3"):
        return _unpatched_dot(self, a, b, d, precision, max_imprecise)
    x, y, total = (torch.from_numpy(np.ascontiguousarray(handle.data)).float() for handle in (a, b, d))
    if name == "tf32":
        total = _mma(_tf32_operand(x), _tf32_operand(y), total)
    else:
        x_high, y_high = _round_away(x), _round_away(y)
        x_low, y_low = _round_away(x - x_high), _round_away(y - y_high)
        small = _mma(x_high, y_low, _mma(x_low, y_high, torch.zeros_like(total)))
        total = _mma(x_high, y_high, total + small)
    return interpreter.TensorHandle(total.numpy(), d.dtype.scalar)


def install():
    interpreter._convert_float = _convert_float
    interpreter.InterpreterBuilder.create_dot = _create_dot


@triton.jit
def _cast(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i).to(y.dtype.element_ty))


@triton.jit
def _dot(x, y, z, N: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(z + at, tl.dot(tl.load(x + at), tl.load(y + at), input_precision=PRECISION))


def self_test():
    """None if the interpreter rounds as it should, else what is wrong. Runs before the candidate is loaded."""
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * 3
    # Known answers: a tie to even, the carry into the exponent, saturation.
    cases = {
        torch.bfloat16: ([1.00390625, 1.01171875, 1.998], [1.0, 1.015625, 2.0]),
        torch.float8_e4m3fn: ([1.987, -7.84, 1e4], [2.0, -8.0, 448.0]),
        torch.float8_e5m2: ([1.95, -7.6], [2.0, -8.0]),
        torch.float16: ([1.00048828125, 1.9999], [1.0, 2.0]),
    }
    for dtype, (given, wanted) in cases.items():
        x[: len(given)] = torch.tensor(given)
        y = torch.zeros(4096, dtype=dtype)
        _cast[(1,)](x, y, N=4096)
        nearest = x.clamp(-_E4M3_MAX, _E4M3_MAX).to(dtype) if dtype is torch.float8_e4m3fn else x.to(dtype)
        if y.float()[: len(given)].tolist() != wanted or not torch.equal(y.float(), nearest.float()):
            return f"the interpreter does not round fp32 to {dtype} to nearest"
    return _wrong_dot()


def _wrong_dot():
    """None if dots are as precise as they claim, sums go where `assume` sends them, and int8 is exact."""
    a, b = (torch.randn(32, 32, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    exact = a.double() @ b.double()
    for precision, low, high in (("ieee", 0.0, 1e-6), ("tf32", 1e-4, 3e-3), ("tf32x3", 0.0, 3e-6)):
        c = torch.zeros(32, 32)
        _dot[(1,)](a, b, c, N=32, PRECISION=precision)
        error = ((c - exact).norm() / exact.norm()).item()
        if not low <= error <= high:
            return f"a {precision} dot in the interpreter has a relative error of {error:.1e}"
    ones, last = torch.ones(16, 16), 1 + 2.0**-23
    a = torch.zeros(16, 16)
    a[:, 0], a[:, 8] = 1.0, 1.5 * 2.0**-24  # in two blocks along K; the sum lies nearer to 1 + 2^-23 than to 1
    for tensor_cores, wanted in ((None, last), ("toward_zero", 1.0)):
        assume(tensor_cores)
        c = torch.zeros(16, 16)
        _dot[(1,)](a, ones, c, N=16, PRECISION="tf32")
        assume(None)
        if not torch.equal(c, torch.full((16, 16), wanted)):
            return f"a tf32 dot in the interpreter does not accumulate as {tensor_cores} says"
    a, b = (
        torch.randint(-128, 128, (64, 64), generator=torch.Generator().manual_seed(s)).to(torch.int8) for s in (3, 4)
    )
    c = torch.zeros(64, 64, dtype=torch.int32)
    _dot[(1,)](a, b, c, N=64, PRECISION=None)
    if not torch.equal(c.long(), a.long() @ b.long()):
        return "an int8 dot in the interpreter is not exact"
    return None
