"""The ground truth of KDA decode on a quantised state, and what a format loses over a long generation. Plain torch.

Run in a process of its own: the expected values never exist where a candidate runs.
"""

import torch

LARGEST = {"int8": 127.0, "float8_e4m3fn": 448.0}


def quantised(state, cache):
    """(codes, scales) of state [..., K], by rows, in the dtype of `state`; codes hold what `cache` can."""
    if cache == "bfloat16":
        return state.float().to(torch.bfloat16).to(state.dtype), torch.ones_like(state[..., 0])
    peak = state.abs().amax(-1)
    scale = torch.where(peak > 0, peak / LARGEST[cache], torch.ones_like(peak))
    codes = state / scale[..., None]
    if cache == "int8":
        return codes.round().clamp(-127, 127), scale
    return codes.float().clamp(-448, 448).to(torch.float8_e4m3fn).to(state.dtype), scale


def advance(tensors, memory, scalars):
    """(out [B, H, V], new memory [B, H, V, K]) of one token, all in the dtype of the memory."""
    q, k, v, a, b, A_log, dt_bias = (tensors[x].to(memory.dtype) for x in ("q", "k", "v", "a", "b", "A_log", "dt_bias"))
    q = q / torch.sqrt((q * q).sum(-1, keepdim=True) + 1e-6) * scalars["scale"]
    k = k / torch.sqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    decay = torch.exp(scalars["lower_bound"] * torch.sigmoid(torch.exp(A_log)[:, None] * (a + dt_bias)))
    memory = memory * decay[:, :, None, :]
    update = torch.sigmoid(b)[..., None] * (v - (memory * k[:, :, None, :]).sum(-1))
    memory = memory + update[..., None] * k[:, :, None, :]
    return (memory * q[:, :, None, :]).sum(-1), memory


def step(tensors, scalars, dtype=torch.float64):
    """One token. Shapes: definition.yaml. Gives out [B, H, V], and codes and scales of all slots."""
    slots = tensors["state_index"].long()
    codes, scale = tensors["state"].to(dtype), tensors["state_scale"].to(dtype)
    out, memory = advance(tensors, codes[slots] * scale[slots][..., None], scalars)
    codes, scale = codes.clone(), scale.clone()
    codes[slots], scale[slots] = quantised(memory, scalars["cache"])
    return {"out": out, "state": codes, "state_scale": scale}


# mean and standard deviation of each input where a workload says nothing else.
DEFAULTS = {
    "q": (0.0, 1.0), "k": (0.0, 1.0), "v": (0.0, 1.0), "a": (0.0, 1.0), "b": (0.0, 1.0),
    "A_log": (0.0, 0.5), "dt_bias": (0.0, 0.5), "state": (0.0, 0.3),
}  # fmt: skip


def drawer(workload, seed):
    """A generator, and a function that draws an input of some shape as the workload wants it."""
    generator = torch.Generator().manual_seed(seed)

    def draw(name, *shape):
        mean, std = DEFAULTS[name]
        spec = workload["inputs"].get(name, {})
        return torch.randn(*shape, generator=generator) * spec.get("std", std) + spec.get("mean", mean)

    return generator, draw


def tokens_of(draw, steps, B, H, K, V):
    shapes = {"q": (B, H, K), "k": (B, H, K), "v": (B, H, V), "a": (B, H, K), "b": (B, H)}
    return {name: draw(name, steps, *shape) for name, shape in shapes.items()}


def make_inputs(workload, axes, seed):
    """(fixed, per_step): as in kda_decode, with the first state in codes of `workload["cache"]`.

    At each step other requests are in the batch; where there are more slots than requests, the last slot is never used
    and must not change.
    """
    generator, draw = drawer(workload, seed)
    B, H, K, V, slots = (axes[x] for x in ("B", "H", "K", "V", "slots"))
    fixed = {"A_log": draw("A_log", H), "dt_bias": draw("dt_bias", H, K)}
    codes, scale = quantised(draw("state", slots, H, V, K), workload["cache"])
    fixed |= {"state": codes.to(getattr(torch, workload["cache"])), "state_scale": scale}
    activation = getattr(torch, workload["activation"])
    per_step = {name: x.to(activation) for name, x in tokens_of(draw, workload["steps"], B, H, K, V).items()}
    usable = slots - (slots > B)
    drawn = [torch.randperm(usable, generator=generator)[:B] for _ in range(workload["steps"])]
    return fixed, per_step | {"state_index": torch.stack(drawn).to(torch.int32)}


DRAWS = 3  # sequences that run side by side: one draw alone may change the order of two formats


def drift(workload, axes, seed):
    """What the format of the state alone costs, in fp64: relative error of the outputs of the second half of `drift_steps`
    steps, the state written back at each step, against one that is never quantised.
    """
    _, draw = drawer(workload, seed)
    T, K, V, cache, scalars = workload["drift_steps"], axes["K"], axes["V"], workload["cache"], workload["scalars"]
    tokens = {name: x.double() for name, x in tokens_of(draw, T, DRAWS, 1, K, V).items()}
    fixed = {"A_log": draw("A_log", 1).double(), "dt_bias": draw("dt_bias", 1, K).double()}
    return {"state": state_drift(tokens, fixed, draw("state", DRAWS, 1, V, K).double(), scalars, cache, 1)}


def state_drift(tokens, fixed, state, scalars, cache, every):
    """Relative error of the outputs of the second half, the state quantised after each `every` tokens."""
    T, kept, exact, wrong, total = len(tokens["q"]), state, state, 0.0, 0.0
    for t in range(T):
        now = {**fixed, **{name: x[t] for name, x in tokens.items()}}
        out, kept = advance(now, kept, scalars)
        want, exact = advance(now, exact, scalars)
        if (t + 1) % every == 0:
            codes, scale = quantised(kept, cache)
            kept = codes * scale[..., None]
        if t >= T // 2:
            wrong, total = wrong + (out - want).square().sum().item(), total + want.square().sum().item()
    return (wrong / total) ** 0.5


def kv_drift(draw, T, D, cache):
    """Relative error of attention over T tokens whose keys and values are kept by token in `cache`; one key channel is 8 times
    the others. Another argument of the engine than the state's, so no verdict here rests on it.
    """
    keys, values, queries = (draw(x, DRAWS, n, D).double() for x, n in (("k", T), ("v", T), ("q", 64)))
    keys[..., 5] *= 8

    def attend(k, v):
        return torch.softmax(queries @ k.transpose(-1, -2) * D**-0.5, -1) @ v

    def stored(x):
        codes, scale = quantised(x, cache)
        return codes * scale[..., None]

    want = attend(keys, values)
    return ((attend(stored(keys), stored(values)) - want).norm() / want.norm()).item()
