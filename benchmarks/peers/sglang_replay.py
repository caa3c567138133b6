"""SGLang's ReplaySSM decode kernel, from the file of its wheel. It has no gate with a lower bound: the bound is not used.

The engine hands q, k and v over packed; packing them here is a torch operation of its own, and is counted as one.
"""

import torch
from fused_recurrent_linear_replayssm import fused_recurrent_linear_replayssm_decode


def run(
    q, k, v, a, b, A_log, dt_bias, state, ring_d, ring_k, ring_g, state_index, write_pos, force_flush, out, scale, lower_bound
):  # fmt: skip
    """Shapes of kda_replay_decode."""
    packed = torch.cat([x.reshape(len(x), -1) for x in (q, k, v)], dim=1)
    fused_recurrent_linear_replayssm_decode(
        packed, a, b, A_log, dt_bias, scale, state, ring_d, ring_k, ring_g, out.unsqueeze(1), state_index, write_pos,
        force_flush, use_qk_l2norm_in_kernel=True, is_kda=True,
    )  # fmt: skip
