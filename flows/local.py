"""The `local` profile: one embedded Prefect server on SQLite per command, everything under INFRA_AGENT_HOME.

The server is a process in a session of its own, so that Ctrl-C ends the run and leaves it an API to report to; it ends with
the command, whatever ends that. With PREFECT_API_URL set, that server is used and none is started.
"""

import atexit
import logging
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

from serving.errors import BadInput, Broken
from serving.home import home

SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,tasks,serving",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_SERVER_LEVEL": "ERROR",
    "PREFECT_CLI_COLORS": "false",
}
READY_TIMEOUT_S, STOP_TIMEOUT_S, PROGRESS_S = 180.0, 10.0, 5.0
log = logging.getLogger(__name__)


def use_server() -> None:
    """For what is about a running server: settings, and `BadInput` when PREFECT_API_URL names none."""
    _settings()
    if not os.environ.get("PREFECT_API_URL"):
        raise BadInput(
            "PREFECT_API_URL names no Prefect server", "docs/operating.md starts one: http://127.0.0.1:4200/api"
        )
    _must_be_prefect(os.environ["PREFECT_API_URL"])


def _must_be_prefect(url: str) -> None:
    """Raises `BadInput` for a URL that is none, or where something else answers. Silence is for the caller to report."""
    hint = "correct PREFECT_API_URL: it ends in /api, as in http://127.0.0.1:4200/api"
    try:
        parsed = httpx.URL(url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise BadInput(f"`{url}` is no URL of a Prefect server", hint)
        answer = httpx.get(f"{url.rstrip('/')}/health", timeout=10)
    except httpx.InvalidURL as error:
        raise BadInput(f"`{url}` is no URL: {error}", hint) from error
    except httpx.HTTPError:
        return
    if answer.status_code == httpx.codes.NOT_FOUND or (answer.is_success and answer.text.strip() != "true"):
        raise BadInput(f"what answers at `{url}` is no Prefect server", hint)


def _settings() -> None:
    os.environ.setdefault("PREFECT_HOME", str(home() / "prefect"))
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def start_prefect() -> None:
    """Make a Prefect API available to this process; call it before anything imports prefect.

    Raises `Broken` when the embedded server does not come up, `BadInput` when PREFECT_API_URL names something else.
    """
    _settings()
    if os.environ.get("PREFECT_API_URL"):
        _must_be_prefect(os.environ["PREFECT_API_URL"])
        return
    port = _free_port()
    script = Path(__file__).with_name("serve_prefect.py")
    command = [sys.executable, "-P", str(script), str(port), str(os.getpid())]
    logs = home() / "prefect-server.log"
    with logs.open("ab") as file:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            env={**os.environ, "PREFECT_UI_ENABLED": "0"},
        )  # fmt: skip
    atexit.register(_stop, server)  # before prefect is imported: it then reports its last events first
    _wait(server, f"http://127.0.0.1:{port}/api", logs)
    os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{port}/api"


def show_progress() -> None:
    """Send the progress of our own packages to stderr; stdout belongs to results."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    for name in ("flows", "tasks", "serving"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.handlers = [handler]
        logger.propagate = False


def _wait(server: "subprocess.Popen[bytes]", url: str, logs: Path) -> None:
    began = told = time.monotonic()
    while time.monotonic() - began < READY_TIMEOUT_S:
        if server.poll() is not None:
            raise Broken(f"the embedded Prefect server ended with status {server.returncode}", f"see `{logs}`")
        try:
            if httpx.get(f"{url}/health", timeout=2, trust_env=False).status_code == httpx.codes.OK:
                return
        except httpx.HTTPError:
            pass  # not up yet: that is what is waited for
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            log.info("waiting for the embedded Prefect server (%.0f s)", told - began)
        time.sleep(0.1)
    raise Broken(f"the embedded Prefect server did not come up in {READY_TIMEOUT_S:.0f} s", f"see `{logs}`")


def _stop(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    try:
        server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
