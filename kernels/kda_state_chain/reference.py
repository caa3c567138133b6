"""The ground truth of the affine chain, and the chunks that it is compared on. Plain torch.

Run in a process of its own: the expected values never exist where a candidate runs.
"""

import torch

CHUNK = 64  # tokens
# Mean of the per-token decay 1 - exp(g), and of beta, where a workload says nothing else.
DEFAULTS = {"decay": 0.025, "beta": 0.5}


def step(tensors, scalars, dtype=torch.float64):
    """S <- M S + B over all chunks, computed in `dtype`, without a split: what `ranks` is must not matter.

    M [H, C, K, K] and B [H, C, K, V]; gives state [H, K, V].
    """
    M, B = tensors["M"].to(dtype), tensors["B"].to(dtype)
    state = torch.zeros_like(B[:, 0])
    for chunk in range(M.shape[1]):
        state = M[:, chunk] @ state + B[:, chunk]
    return {"state": state}


def transition(k, v, beta, decay):
    """M [..., K, K] and B [..., K, V] of a chunk of tokens that each do S <- (I - beta k k^T) Diag(1 - decay) S + beta k v^T.

    k [..., T, K], v [..., T, V], beta [..., T], decay [..., T, K], in fp64. With D_t the decay up to token t, the updates
    u of a chunk solve (I + tril(beta (k D) (k / D)^T, -1)) u = beta (v - (k D) S).
    """
    log = torch.log1p(-decay).cumsum(-2)
    seen, left = k * log.exp(), k * (log[..., -1:, :] - log).exp()
    overlap = (seen @ (k * (-log).exp()).transpose(-1, -2)).tril(-1)
    system = torch.eye(k.shape[-2], dtype=k.dtype) + beta[..., None] * overlap
    right = beta[..., None] * torch.cat([seen, v], -1)
    solved = left.transpose(-1, -2) @ torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    return torch.diag_embed(log[..., -1, :].exp()) - solved[..., : k.shape[-1]], solved[..., k.shape[-1] :]


def make_inputs(workload, axes, seed):
    """(fixed, per_step): M [H, C, K, K] and B [H, C, K, V] in fp32, of random tokens; nothing changes from step to step.

    `workload["inputs"]` sets two means: the decay of a token and channel is uniform from 0 to twice its mean; beta is the
    sigmoid of a normal number times twice its mean. Keys are normal and of length 1, values normal.
    """
    generator = torch.Generator().manual_seed(seed)
    H, C, K, V = (axes[x] for x in ("H", "C", "K", "V"))
    mean = {name: workload["inputs"].get(name, {}).get("mean", usual) for name, usual in DEFAULTS.items()}

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    k, v = normal(H, C, CHUNK, K), normal(H, C, CHUNK, V)
    beta = 2 * mean["beta"] * torch.sigmoid(normal(H, C, CHUNK))
    decay = 2 * mean["decay"] * torch.rand(H, C, CHUNK, K, generator=generator, dtype=torch.float64)
    M, B = transition(k / k.norm(dim=-1, keepdim=True), v, beta, decay)
    return {"M": M.float(), "B": B.float()}, {}
