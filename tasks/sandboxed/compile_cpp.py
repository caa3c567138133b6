"""Compiles /stage/candidate.cpp with the flags of the request to /stage/candidate.so, or says what g++ says."""

# mypy: ignore-errors

import json
import subprocess
from pathlib import Path

STAGE = Path("/stage")
request = json.loads((STAGE / "request.json").read_text())
command = ["g++", *request["flags"], "-o", "candidate.so", "candidate.cpp"]
done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
lines = done.stderr.splitlines()
first = next((line for line in lines if "error" in line or "undefined" in line), lines[-1] if lines else "no output")
fault = None if done.returncode == 0 else f"g++: {first}"[:400]
(STAGE / "result.json").write_text(json.dumps({"nonce": request["nonce"], "fault": fault}))
