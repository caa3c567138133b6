"""The ground truth of KDA decode, and the inputs that it is compared on. Plain torch, one line per line of the maths.

Run in a process of its own: the expected values never exist where a candidate runs.
"""

import torch


def step(q, k, v, a, b, A_log, dt_bias, state, state_index, scale, lower_bound, dtype=torch.float64):
    """One token, computed in `dtype`. Shapes: definition.yaml. Returns (out [B, H, V], all slots of the new state)."""
    q, k, v, a, b, A_log, dt_bias, state = (x.to(dtype) for x in (q, k, v, a, b, A_log, dt_bias, state))
    slots = state_index.long()
    q = q / torch.sqrt((q * q).sum(-1, keepdim=True) + 1e-6) * scale
    k = k / torch.sqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    gate = lower_bound * torch.sigmoid(torch.exp(A_log)[:, None] * (a + dt_bias))
    memory = state[slots] * torch.exp(gate)[:, :, None, :]
    update = torch.sigmoid(b)[..., None] * (v - (memory * k[:, :, None, :]).sum(-1))
    memory = memory + update[..., None] * k[:, :, None, :]
    state = state.clone()
    state[slots] = memory
    return (memory * q[:, :, None, :]).sum(-1), state


# mean and standard deviation of each input where a workload says nothing else.
DEFAULTS = {
    "q": (0.0, 1.0), "k": (0.0, 1.0), "v": (0.0, 1.0), "a": (0.0, 1.0), "b": (0.0, 1.0),
    "A_log": (0.0, 0.5), "dt_bias": (0.0, 0.5), "state": (0.0, 0.3),
}  # fmt: skip


def make_inputs(workload, axes, seed):
    """(fixed, per_step): A_log, dt_bias, the first state and state_index; q, k, v, a, b with a leading axis of steps.

    `axes` holds every axis with its size. `workload["inputs"]` moves the mean and the standard deviation of the normal
    distribution of an input. Fewer requests than slots leave slots that must not change.
    """
    generator = torch.Generator().manual_seed(seed)
    B, H, K, V, slots = (axes[x] for x in ("B", "H", "K", "V", "slots"))
    steps, activation = workload["steps"], getattr(torch, workload["activation"])

    def draw(name, *shape):
        mean, std = DEFAULTS[name]
        spec = workload["inputs"].get(name, {})
        return torch.randn(*shape, generator=generator) * spec.get("std", std) + spec.get("mean", mean)

    fixed = {"A_log": draw("A_log", H), "dt_bias": draw("dt_bias", H, K), "state": draw("state", slots, H, V, K)}
    fixed["state_index"] = torch.randperm(slots, generator=generator)[:B].to(torch.int32)
    shapes = {"q": (B, H, K), "k": (B, H, K), "v": (B, H, V), "a": (B, H, K), "b": (B, H)}
    return fixed, {name: draw(name, steps, *shape).to(activation) for name, shape in shapes.items()}
