"""FLA's recurrent KDA kernel (`fla-core`), through the forward behind `fused_recurrent_kda`: only that takes state slots."""

from fla.ops.kda.fused_recurrent import fused_recurrent_kda_fwd


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    """Shapes of kda_decode; one token is a sequence of its own."""
    tokens = (x.unsqueeze(1) for x in (q, k, v, a, b))
    fused_recurrent_kda_fwd(
        *tokens, A_log=A_log, dt_bias=dt_bias, initial_state=state, scale=scale, inplace_final_state=True,
        state_v_first=True, ssm_state_indices=state_index, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
        use_beta_sigmoid_in_kernel=True, lower_bound=lower_bound, out=out.unsqueeze(1),
    )  # fmt: skip
