"""Writes a result of its own and leaves before ours is written.

trap: [H4]
rung: build
reason: 'does not carry the nonce of the request'
base: incumbent
"""


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    import json
    import os
    import pathlib

    forged = {"nonce": "0", "fault": None, "functions": [], "calls": {}}
    pathlib.Path("/stage/result.json").write_text(json.dumps(forged))
    os._exit(0)
