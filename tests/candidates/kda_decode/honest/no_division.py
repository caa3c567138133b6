"""No division of floating-point numbers: reciprocal roots, and the library's sigmoid.

base: incumbent
edits:
  - old: 'query / tl.sqrt(tl.sum(query * query, axis=0) + EPS) * scale'
    new: 'query * (tl.rsqrt(tl.sum(query * query, axis=0) + EPS) * scale)'
  - old: 'key / tl.sqrt(tl.sum(key * key, axis=0) + EPS)'
    new: 'key * tl.rsqrt(tl.sum(key * key, axis=0) + EPS)'
  - old: 'lower_bound / (1.0 + tl.exp(-rate * raw))'
    new: 'lower_bound * tl.sigmoid(rate * raw)'
  - old: '1.0 / (1.0 + tl.exp(-tl.load(b + row).to(tl.float32)))'
    new: 'tl.sigmoid(tl.load(b + row).to(tl.float32))'
"""
