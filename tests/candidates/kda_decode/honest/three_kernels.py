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
          betas[(triton.cdiv(requests * heads, 128),)](b, beta, requests * heads, BLOCK=128)
          update_state[(
"""


@triton.jit(do_not_specialize=["total"])
def betas(b, beta_out, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    raw = tl.load(b + at, mask=at < total, other=0.0).to(tl.float32)
    tl.store(beta_out + at, 1.0 / (1.0 + tl.exp(-raw)), mask=at < total)
