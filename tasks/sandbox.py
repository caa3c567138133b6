"""Where code that we did not write runs. What it does wrong is an `Ending`; what our side does wrong is `Broken`.

A probe shows, once per process of ours, that the sandbox holds: no network, no write outside, no secrets, no
neighbours. If it does not, nothing runs.
"""

import functools
import json
import os
import secrets
import socket
import tempfile
import threading
from pathlib import Path

from serving.errors import Broken
from tasks.bubblewrap import run_in_bubblewrap
from tasks.ending import Ending, Limits

_LIMITS = Limits(cpu_s=10, wall_s=30.0, memory_bytes=1 << 30, file_bytes=1 << 20)
# What the probe may find, by name of the attempt: anything else is a hole.
_EXPECTED = {
    "network": "refused",
    "write_outside": "refused",
    "read_outside": "refused",
    "secret": "hidden",
    "processes": "own",
}


_PROBING = threading.Lock()  # the secret is a variable of the whole process, and the cache lets two threads in


@functools.cache
def sandbox_mode() -> str:
    """The mode, for the environment facts; probed once per process. Raises Broken if it leaks or cannot start."""
    secret = secrets.token_hex(16)
    with _PROBING, tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        stage, outside = Path(folder, "stage"), Path(folder, "outside")
        stage.mkdir()
        outside.write_text(secret)
        request = {"port": server.getsockname()[1], "outside": str(outside), "secret": secret, "pid": os.getpid()}
        (stage / "request.json").write_text(json.dumps(request))
        os.environ["INFRA_AGENT_PROBE_SECRET"] = secret
        try:
            ending = run_in_bubblewrap("probe.py", [], stage, _LIMITS)
        finally:
            del os.environ["INFRA_AGENT_PROBE_SECRET"]
        if ending.kind != "ok":
            raise Broken(
                f"the sandbox probe failed: {ending.reason}", "run `infra-agent doctor`; see docs on the sandbox"
            )
        found = json.loads((stage / "probe.json").read_text())
    holes = sorted(name for name, value in _EXPECTED.items() if found.get(name) != value)
    if holes:
        raise Broken(
            f"the sandbox leaks: `{', '.join(f'{hole}={found.get(hole)}' for hole in holes)}`",
            "candidates are refused on this machine until its sandbox holds",
        )
    return "bubblewrap"


def run_sandboxed(script: str, arguments: list[str], stage: Path, limits: Limits) -> Ending:
    """Run `tasks/sandboxed/<script>` with `stage` as its only writable folder, once the probe has passed.

    Raises Broken if the sandbox does not hold, cannot be set up, or if something outside killed the process.
    """
    sandbox_mode()
    return run_in_bubblewrap(script, arguments, stage, limits)
