"""When a started server is ready: its own process listens on its port, and it has generated a token."""

import logging
import time
from collections.abc import Callable, Mapping

import httpx

from serving.endings import EngineEnded, why_it_ended
from serving.errors import Broken
from serving.process import EngineProcess
from serving.replicas import entry_of
from serving.stack import StackSpec

log = logging.getLogger(__name__)

POLL_S = 0.5
PROGRESS_S = 5.0
FIRST_TOKEN_TIMEOUT_S = 30.0


def wait_until_ready(
    specs: Mapping[str, StackSpec], started: Mapping[str, EngineProcess], look: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Seconds until each was ready; calls `look` now and then.

    Raises Broken for a timeout or a stranger on a port, EngineEnded for an early end.
    """
    begun = said = time.monotonic()
    ready_s: dict[str, float] = {}
    ended: dict[str, EngineEnded] = {}
    while len(ready_s) + len(ended) < len(started):
        for name, process in started.items():
            if name in ready_s or name in ended:
                continue
            waited_s = time.monotonic() - begun
            process.observe()
            if process.exit_status() is not None:
                ended[name] = why_it_ended(process)
            elif process.listener() is not None and generates(entry_of(specs[name])):
                ready_s[name] = time.monotonic() - begun
                log.info("%s: ready after %.0f s", name, ready_s[name])
            elif waited_s > specs[name].ready_timeout_s:
                raise Broken(
                    f"`{name}` was not ready after {waited_s:.0f} s",
                    f"see {process.log_file}, or raise `ready_timeout_s`",
                )
        if time.monotonic() - said >= PROGRESS_S and len(ready_s) + len(ended) < len(started):
            said = time.monotonic()
            waiting = [name for name in started if name not in ready_s and name not in ended]
            log.info("%.0f s: waiting for %s", said - begun, " and ".join(waiting))
        look()
        time.sleep(POLL_S)
    for name in started:
        if name in ended:
            raise ended[name]
    return ready_s


def wait_while(
    waiting: Callable[[], list[str]],
    started: Mapping[str, EngineProcess],
    timeout_s: float,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Looks twice a second until nothing is `waiting`.

    Raises EngineEnded for the first of `started` that ends, Broken for what still waits after `timeout_s`.
    """
    begun = said = time.monotonic()
    while True:
        for process in started.values():
            process.observe()
            if process.exit_status() is not None:
                raise why_it_ended(process)
        look()
        if not (left := waiting()):
            return
        waited_s = time.monotonic() - begun
        if waited_s > timeout_s:
            named = " and ".join(f"`{name}`" for name in left)
            logs = ", ".join(str(started[name].log_file) for name in left if name in started)
            raise Broken(
                f"{named} not ready after {waited_s:.0f} s", f"see {logs or 'its log'}, or raise `ready_timeout_s`"
            )
        if time.monotonic() - said >= PROGRESS_S:
            said = time.monotonic()
            log.info("%.0f s: waiting for %s", waited_s, " and ".join(left))
        time.sleep(POLL_S)


def is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2, trust_env=False).status_code == 200
    except (httpx.HTTPError, httpx.InvalidURL):
        return False


def generates(url: str, headers: Mapping[str, str] | None = None) -> bool:
    """Whether the server answers with a token. `/health` comes first, being cheap, but it says yes too early."""
    asked = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}}
    if not is_healthy(url):
        return False
    try:
        answer = httpx.post(
            f"{url}/generate", json=asked, headers=headers, timeout=FIRST_TOKEN_TIMEOUT_S, trust_env=False
        )
        told = answer.json()
    except (httpx.HTTPError, ValueError, RecursionError):
        return False
    found = told.get("output_ids") if answer.status_code == 200 and isinstance(told, dict) else None
    return isinstance(found, list) and len(found) == 1
