"""Tries what a candidate must not be able to do, and writes down what happened."""

import json
import os
import socket
from pathlib import Path

request = json.loads(Path("request.json").read_text())
found = {}

try:
    socket.create_connection(("127.0.0.1", request["port"]), timeout=2).close()
    found["network"] = "connected"
except OSError:
    found["network"] = "refused"

found["write_outside"] = "refused"
for folder in (Path(request["outside"]).parent, Path("/usr"), Path(os.__file__).parent, Path(__file__).parent):
    try:
        Path(folder, "probe").write_text("x")
        found["write_outside"] = f"wrote to {folder}"
    except OSError:
        continue

try:
    found["read_outside"] = f"read {len(Path(request['outside']).read_text())} characters"
except OSError:
    found["read_outside"] = "refused"

seen = " ".join(os.environ.values())
for environment in Path("/proc").glob("*/environ"):
    try:
        seen += environment.read_bytes().decode(errors="replace")
    except OSError:
        continue
found["secret"] = "visible" if request["secret"] in seen else "hidden"
# A private process namespace numbers from 1 and shows only the few processes of this sandbox.
numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
found["processes"] = "own" if len(numbers) <= 4 and max(numbers) < 50 else f"{len(numbers)} processes"
Path("probe.json").write_text(json.dumps(found))
