"""Three launches with scratch buffers in between, one of them a slice of another.

quick: true
base: hoist_gate
edits:
  - old: |2
          tl.store(beta_out + row, 1.0 / (1.0 + tl.exp(-tl.load(b + row).to(tl.float32))))
    new: ''
  - old: '(torch.empty(requests, heads, K, dtype=torch.float32, device=q.device) for _ in range(3))'
    new: 'torch.empty(3, requests, heads, K, dtype=torch.float32, device=q.device).unbind()'
  - old: |2-
          update_state[(
    new: |2-
          betas[(requests,)](b, beta, heads, BLOCK=triton.next_power_of_2(heads))
          update_state[(
"""


@triton.jit
def betas(b, beta_out, heads, BLOCK: tl.constexpr):
    head = tl.arange(0, BLOCK)
    at = tl.program_id(0) * heads + head
    raw = tl.load(b + at, mask=head < heads, other=0.0).to(tl.float32)
    tl.store(beta_out + at, 1.0 / (1.0 + tl.exp(-raw)), mask=head < heads)
