"""The ground truth of KDA decode, and the inputs that it is compared on. Plain torch, one line per line of the maths.

Run in a process of its own: the expected values never exist where a candidate runs.
"""

import torch
from torch.nn.functional import softplus


def step(tensors, scalars, dtype=torch.float64):
    """One token, computed in `dtype`. Shapes: definition.yaml. Gives `out` and all slots of the new `state`."""
    slots = tensors["state_index"].long()
    q, k, v, a, b, A_log, dt_bias, state = (
        tensors[name].to(dtype) for name in ("q", "k", "v", "a", "b", "A_log", "dt_bias", "state")
    )
    q = q / torch.sqrt((q * q).sum(-1, keepdim=True) + 1e-6) * scalars["scale"]
    k = k / torch.sqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    rate = torch.exp(A_log)[:, None]
    bound = scalars["lower_bound"]
    gate = -rate * softplus(a + dt_bias) if bound is None else bound * torch.sigmoid(rate * (a + dt_bias))
    memory = state[slots] * torch.exp(gate)[:, :, None, :]
    update = torch.sigmoid(b)[..., None] * (v - (memory * k[:, :, None, :]).sum(-1))
    memory = memory + update[..., None] * k[:, :, None, :]
    state = state.clone()
    state[slots] = memory
    return {"out": (memory * q[:, :, None, :]).sum(-1), "state": state}


# mean and standard deviation of each input where a workload says nothing else.
DEFAULTS = {
    "q": (0.0, 1.0), "k": (0.0, 1.0), "v": (0.0, 1.0), "a": (0.0, 1.0), "b": (0.0, 1.0),
    "A_log": (0.0, 0.5), "dt_bias": (0.0, 0.5), "state": (0.0, 0.3),
}  # fmt: skip


def make_inputs(workload, axes, seed):
    """(fixed, per_step): A_log, dt_bias and the first state; q, k, v, a, b and state_index with a leading axis of steps.

    `axes` holds every axis with its size. `workload["inputs"]` moves the mean and the standard deviation of the normal
    distribution of an input. At each step other requests are in the batch; where there are more slots than requests, the
    last slot is never used and must not change.
    """
    generator = torch.Generator().manual_seed(seed)
    B, H, K, V, slots = (axes[x] for x in ("B", "H", "K", "V", "slots"))
    steps, activation = workload["steps"], getattr(torch, workload["activation"])

    def draw(name, *shape):
        mean, std = DEFAULTS[name]
        spec = workload["inputs"].get(name, {})
        return torch.randn(*shape, generator=generator) * spec.get("std", std) + spec.get("mean", mean)

    fixed = {"A_log": draw("A_log", H), "dt_bias": draw("dt_bias", H, K), "state": draw("state", slots, H, V, K)}
    shapes = {"q": (B, H, K), "k": (B, H, K), "v": (B, H, V), "a": (B, H, K), "b": (B, H)}
    per_step = {name: draw(name, steps, *shape).to(activation) for name, shape in shapes.items()}
    usable = slots - (slots > B)
    drawn = [torch.randperm(usable, generator=generator)[:B] for _ in range(steps)]
    return fixed, per_step | {"state_index": torch.stack(drawn).to(torch.int32)}
