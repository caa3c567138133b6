"""One pass over the state, compiled by numba: the same loops as `fused_cpp.py`, in Python.

numpy has no bf16, so torch widens the five small inputs and narrows the output; the state is fp32 either way.
"""

import numba
import numpy as np
import torch

ONE, EPS = np.float32(1), np.float32(1e-6)


@numba.njit(fastmath={"reassoc", "contract", "nsz"})
def decode(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, bounded):
    requests, heads, width = q.shape
    query, key, decay = np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    for i in range(requests):
        for h in range(heads):
            qq, kk = np.float32(0), np.float32(0)
            for c in range(width):
                qq += q[i, h, c] * q[i, h, c]
                kk += k[i, h, c] * k[i, h, c]
            of_query, of_key = scale / np.sqrt(qq + EPS), ONE / np.sqrt(kk + EPS)
            rate = np.exp(A_log[h])
            for c in range(width):
                query[c], key[c] = q[i, h, c] * of_query, k[i, h, c] * of_key
                raw = a[i, h, c] + dt_bias[h, c]
                if bounded:
                    gate = lower_bound / (ONE + np.exp(-rate * raw))
                else:
                    gate = -rate * (raw if raw > 20 else np.log1p(np.exp(raw)))
                decay[c] = np.exp(gate)
            beta = ONE / (ONE + np.exp(-b[i, h]))
            rows = state[state_index[i], h]
            for r in range(rows.shape[0]):
                found, read = np.float32(0), np.float32(0)
                for c in range(width):
                    found += rows[r, c] * decay[c] * key[c]
                update = beta * (v[i, h, r] - found)
                for c in range(width):
                    x = rows[r, c] * decay[c] + update * key[c]
                    rows[r, c] = x
                    read += x * query[c]
                out[i, h, r] = read


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    """Shapes and dtypes: definition.yaml. Writes `out` and updates `state` in place."""
    tensors = (x.float().numpy() for x in (q, k, v, a, b))
    result = np.empty(out.shape, np.float32)
    bound, bounded = np.float32(lower_bound or 0.0), lower_bound is not None
    decode(
        *tensors, A_log.numpy(), dt_bias.numpy(), state.numpy(), state_index.numpy(), result, np.float32(scale), bound,
        bounded,
    )  # fmt: skip
    out.copy_(torch.from_numpy(result))
