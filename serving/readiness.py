"""When a started server is ready: its own process listens on its port, and it has generated a token. Or why it ended."""

import logging
import re
import time
from collections.abc import Mapping

import httpx

from serving.errors import Broken
from serving.process import EngineProcess
from serving.stack import StackSpec

log = logging.getLogger(__name__)

POLL_S = 0.5
PROGRESS_S = 5.0
FIRST_TOKEN_TIMEOUT_S = 30.0

_EXCEPTION_LINE = re.compile(r"^(?:\[[^\]]*\] )?(?:[\w.]+: error: |[A-Za-z_.]*(?:Error|Exception|Interrupt)\b).*")
# Lines that blame the machine or somebody else, whatever the arguments were.
_NOT_ITS_FAULT = re.compile(r"Address already in use|No space left|Too many open files|exit code -(9|15)\b")


class EngineEnded(Broken):
    """`server` ended by itself. `refused`: its own log holds the reason, so nobody ended it from outside."""

    def __init__(self, message: str, hint: str, server: str = "", refused: bool = False) -> None:
        super().__init__(message, hint)
        self.server, self.refused = server, refused

    def __reduce__(self) -> tuple[type, tuple[str, str, str, bool]]:  # type: ignore[override]
        return type(self), (self.message, self.hint, self.server, self.refused)


def wait_until_ready(specs: Mapping[str, StackSpec], started: Mapping[str, EngineProcess]) -> dict[str, float]:
    """Seconds until each was ready. Raises Broken for a timeout or a stranger on a port, EngineEnded for an early end."""
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
            elif process.listener() is not None and _generates(process):
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
        time.sleep(POLL_S)
    for name in started:
        if name in ended:
            raise ended[name]
    return ready_s


def _generates(process: EngineProcess) -> bool:
    """Whether the server answers with a token. `/health` comes first, being cheap, but it says yes too early."""
    url = f"http://127.0.0.1:{process.port}"
    asked = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}}
    try:
        if httpx.get(f"{url}/health", timeout=2, trust_env=False).status_code != 200:
            return False
        answer = httpx.post(f"{url}/generate", json=asked, timeout=FIRST_TOKEN_TIMEOUT_S, trust_env=False)
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and len(answer.json().get("output_ids", [])) == 1


def why_it_ended(process: EngineProcess) -> EngineEnded:
    text = process.log_file.read_text(encoding="utf-8", errors="replace")
    faults = [line.strip() for line in text.splitlines() if _EXCEPTION_LINE.match(line)]
    status = process.exit_status()
    said = f"`{faults[-1]}`" if faults else "nothing"
    return EngineEnded(
        f"`{process.name}` ended with status {status}; last error in its log: {said}",
        f"see {process.log_file}",
        server=process.name,
        refused=bool(faults) and not _NOT_ITS_FAULT.search(text),
    )
