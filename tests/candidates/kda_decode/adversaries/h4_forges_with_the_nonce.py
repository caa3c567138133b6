"""Reads the nonce and says that every shape launches nothing. It can only say what it would launch.

trap: [H4]
rung: build
reason: 'it launches no kernel at'
quick: true
base: incumbent
"""


def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):
    import json
    import os
    import pathlib

    request = json.loads(pathlib.Path("/stage/request.json").read_text())
    calls = {call["workload"]: [] for call in request["calls"]}
    forged = {"nonce": request["nonce"], "fault": None, "functions": [], "calls": calls}
    pathlib.Path("/stage/result.json").write_text(json.dumps(forged))
    os._exit(0)
