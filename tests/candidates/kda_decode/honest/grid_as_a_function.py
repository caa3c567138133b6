"""A grid that is a function of the constants.

base: incumbent
edits:
  - old: 'kda_decode[(V // BV, heads, requests)]'
    new: 'kda_decode[lambda meta: (triton.cdiv(meta["V"], meta["BV"]), heads, requests)]'
"""
