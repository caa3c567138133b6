"""The ground truth of the W8A8 linear layer, and the inputs that it is compared on. Plain torch.

Run in a process of its own: the expected values never exist where a candidate runs.
"""

import torch

# Standard deviation of the int8 operands and of the logarithm of the scales; mean of the operands.
DEFAULTS = {"x": (0.0, 40.0), "w": (0.0, 40.0), "x_scale": (0.0, 0.5), "w_scale": (0.0, 0.5)}


def step(tensors, scalars, dtype=torch.float64):
    """The layer with exact int8 products, scaled in `dtype`. x [M, K], w [N, K] int8; gives out [M, N]."""
    total = tensors["x"].double() @ tensors["w"].double().T  # below 2^53, so exact in fp64
    scaled = total.to(dtype) * tensors["x_scale"].to(dtype)[:, None] * tensors["w_scale"].to(dtype)[None, :]
    return {"out": scaled}


def make_inputs(workload, axes, seed):
    """(fixed, per_step): w and its scales; x and its scales with a leading axis of steps.

    Operands are normal numbers rounded and cut to [-127, 127], as symmetric quantisation leaves them; scales are
    log-normal around 0.01. `workload["inputs"]` moves mean and standard deviation of the operands, and for scales those
    of the logarithm.
    """
    generator = torch.Generator().manual_seed(seed)
    M, N, K = (axes[x] for x in ("M", "N", "K"))

    def draw(name, *shape):
        mean, std = DEFAULTS[name]
        spec = workload["inputs"].get(name, {})
        return torch.randn(*shape, generator=generator) * spec.get("std", std) + spec.get("mean", mean)

    def codes(name, *shape):
        return draw(name, *shape).round().clamp(-127, 127).to(torch.int8)

    steps = workload["steps"]
    fixed = {"w": codes("w", N, K), "w_scale": 0.01 * draw("w_scale", N).exp()}
    return fixed, {"x": codes("x", steps, M, K), "x_scale": 0.01 * draw("x_scale", steps, M).exp()}
