"""Scratch memory that is allocated once and kept between calls.

base: hoist_gate
edits:
  - old: '(torch.empty(requests, heads, K, dtype=torch.float32, device=q.device) for _ in range(3))'
    new: 'workspace(requests, heads, K, q.device)'
"""

WORKSPACE = {}


def workspace(requests, heads, K, device):
    key = (requests, heads, K, device)
    if key not in WORKSPACE:
        WORKSPACE[key] = torch.empty(3, requests, heads, K, dtype=torch.float32, device=device)
    return WORKSPACE[key]
