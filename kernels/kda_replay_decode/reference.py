"""The ground truth of KDA decode with ReplaySSM, and the inputs that it is compared on. Plain torch.

Run in a process of its own: the expected values never exist where a candidate runs.
"""

import torch


def gate(raw, A_log, lower_bound):
    """log of the decay, [..., H, K]: bounded (a scaled sigmoid) or, with `lower_bound` None, -exp(A_log) softplus."""
    rate = torch.exp(A_log)[:, None]
    if lower_bound is None:
        return -rate * torch.logaddexp(raw, torch.zeros_like(raw))
    return lower_bound * torch.sigmoid(rate * raw)


def restored(state, d, k, g, filled):
    """The state [B, H, V, K] before the token: the checkpoint decayed over the valid entries, and each replayed."""
    d, k, g = (torch.where(filled[:, None, :, None], x, torch.zeros_like(x)) for x in (d, k, g))
    later = g.flip(2).cumsum(2).flip(2) - g
    return state * torch.exp(g.sum(2))[:, :, None, :] + torch.einsum("bhlv,bhlk->bhvk", d, torch.exp(later) * k)


def step(tensors, scalars, dtype=torch.float64):
    """One token, computed in `dtype`. Shapes: definition.yaml. Gives out [B, H, V], all states and rings."""
    floats = ("q", "k", "v", "a", "b", "A_log", "dt_bias", "state", "ring_d", "ring_k", "ring_g")
    q, k, v, a, b, A_log, dt_bias, state, ring_d, ring_k, ring_g = (tensors[name].to(dtype) for name in floats)
    slots, position = tensors["state_index"].long(), tensors["write_pos"].long()
    L = ring_d.shape[2]
    q = q / torch.sqrt((q * q).sum(-1, keepdim=True) + 1e-6) * scalars["scale"]
    k = k / torch.sqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    g = gate(a + dt_bias, A_log, scalars["lower_bound"])
    filled = torch.arange(L, device=position.device) < position[:, None]
    memory = restored(state[slots], ring_d[slots], ring_k[slots], ring_g[slots], filled)
    memory = memory * torch.exp(g)[:, :, None, :]
    update = torch.sigmoid(b)[..., None] * (v - (memory * k[:, :, None, :]).sum(-1))
    memory = memory + update[..., None] * k[:, :, None, :]
    state, ring_d, ring_k, ring_g = (x.clone() for x in (state, ring_d, ring_k, ring_g))
    flush = (position == L - 1) | (tensors["force_flush"] != 0)
    state[slots[flush]] = memory[flush]
    kept = ~flush
    for ring, new in ((ring_d, update), (ring_k, k), (ring_g, g)):
        ring[slots[kept], :, position[kept]] = new[kept]
    out = (memory * q[:, :, None, :]).sum(-1)
    return {"out": out, "state": state, "ring_d": ring_d, "ring_k": ring_k, "ring_g": ring_g}


# mean and standard deviation of each input where a workload says nothing else.
DEFAULTS = {
    "q": (0.0, 1.0), "k": (0.0, 1.0), "v": (0.0, 1.0), "a": (0.0, 1.0), "b": (0.0, 1.0),
    "A_log": (0.0, 0.5), "dt_bias": (0.0, 0.5), "state": (0.0, 0.3), "ring_d": (0.0, 0.5),
}  # fmt: skip


def schedule(workload, axes, generator):
    """Who is in the batch at each step, and where its ring stands: state_index, write_pos, force_flush, copied.

    Means in `workload["inputs"]`: of write_pos, where rings stand at first; of force_flush, of `reset` (a slot given to a new
    request) and of `copied` (a flushed slot copied to another), how often.
    """
    B, slots, L, steps = axes["B"], axes["slots"], axes["L"], workload["steps"]
    mean = {name: spec.get("mean", 0.0) for name, spec in workload["inputs"].items()}
    usable = slots - (slots > B)
    position = torch.full((slots,), min(int(mean.get("write_pos", 0)), L - 1))
    rows = {"state_index": [], "write_pos": [], "force_flush": [], "copied": []}
    for _ in range(steps):
        chance = torch.rand(3 + B, generator=generator)
        order = torch.randperm(usable, generator=generator)
        copied, flushed = torch.tensor([-1, -1]), (position[:usable] == 0).nonzero().flatten()
        if chance[0] < mean.get("copied", 0.0) and len(flushed) and usable > 1:
            source = flushed[0]
            copied = torch.stack([source, (source + 1) % usable])
            position[copied[1]] = 0
        if chance[1] < mean.get("reset", 0.0):
            position[order[0]] = 0
        index, force = order[:B], (chance[3:] < mean.get("force_flush", 0.0)).long()
        now = position[index]
        for name, x in (("state_index", index), ("write_pos", now), ("force_flush", force), ("copied", copied)):
            rows[name].append(x)
        position[index] = torch.where((now == L - 1) | (force != 0), 0, now + 1)
    return {name: torch.stack(x).to(torch.int32) for name, x in rows.items()}


def make_inputs(workload, axes, seed):
    """(fixed, per_step): parameters, first states and rings; tokens and the schedule with a leading axis of steps.

    `axes` holds every axis with its size. `workload["inputs"]` moves the mean and the standard deviation of the normal
    distribution of an input. Where there are more slots than requests, the last slot is never used and must not change.
    What does not depend on L is the same for every L.
    """
    generator = torch.Generator().manual_seed(seed)
    B, H, K, V, slots, L = (axes[x] for x in ("B", "H", "K", "V", "slots", "L"))
    steps, activation = workload["steps"], getattr(torch, workload["activation"])

    def draw(name, *shape):
        mean, std = DEFAULTS[name]
        spec = workload["inputs"].get(name, {})
        return torch.randn(*shape, generator=generator) * spec.get("std", std) + spec.get("mean", mean)

    fixed = {"A_log": draw("A_log", H), "dt_bias": draw("dt_bias", H, K), "state": draw("state", slots, H, V, K)}
    shapes = {"q": (B, H, K), "k": (B, H, K), "v": (B, H, V), "a": (B, H, K), "b": (B, H)}
    per_step = {name: draw(name, steps, *shape).to(activation) for name, shape in shapes.items()}
    per_step |= schedule(workload, axes, generator)
    keys, raw = draw("k", slots, H, L, K), draw("a", slots, H, L, K)
    fixed["ring_d"] = draw("ring_d", slots, H, L, V)
    fixed["ring_k"] = keys / torch.sqrt((keys * keys).sum(-1, keepdim=True) + 1e-6)
    biased = (raw + fixed["dt_bias"][:, None, :]).transpose(1, 2)
    fixed["ring_g"] = gate(biased, fixed["A_log"], workload["scalars"]["lower_bound"]).transpose(1, 2).contiguous()
    return fixed, per_step
