"""Views of inputs, and strides as arguments.

base: incumbent
edits:
  - old: |-
      scale, lower_bound,
          K: tl
    new: |-
      scale, lower_bound, q_row, head_stride,
          K: tl
  - old: 'query = tl.load(q + row * K + cols)'
    new: 'query = tl.load(q + row * q_row + cols)'
  - old: '(slot * heads + head) * (V * K)'
    new: '(slot * heads + head) * head_stride'
  - old: |2-
              q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound,
              K=K
    new: |2-
              q.view(-1, K), k.flatten(), v, a.unsqueeze(0), b, A_log, dt_bias[:], state, state_index, out.view(-1, V), scale,
              lower_bound, q.stride(1), state.stride(1), K=K
"""
