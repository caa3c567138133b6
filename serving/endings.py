"""That a process of a server has ended: whose doing it was by its status and its log, and who has to know of it at once."""

import asyncio
import logging
import re
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from serving.errors import Broken
from serving.process import EngineProcess

log = logging.getLogger(__name__)

Result = TypeVar("Result")

POLL_S = 0.5
READ_BYTES = 4 << 20  # of the end of a log: an engine may write without end
MOST_SHOWN = 500

# The last alternative is how uvicorn says that it cannot listen.
_EXCEPTION_LINE = re.compile(
    r"^(?:\[[^\]]*\] )?(?:[\w.]+: error: |[A-Za-z_.]*(?:Error|Exception|Interrupt)\b|ERROR: +\[Errno ).*"
)
# Lines that blame the machine or somebody else, whatever the arguments were.
_NOT_ITS_FAULT = re.compile(
    r"(?i:address already in use)|cannot assign requested address|No space left|Too many open files|exit code -(9|15)\b"
)
# A crash has other signals, such as SIGSEGV. SGLang sends itself SIGKILL when a child has failed, and says so first.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_ENDS_ITSELF = re.compile(r"Received sigquit from a child process|kill_process_tree called")
_CHAINED = re.compile(r"During handling of the above exception|The above exception was the direct cause")


class EngineEnded(Broken):
    """`server` ended by itself. `refused`: its own log holds the reason, so nobody ended it from outside."""

    def __init__(self, message: str, hint: str, server: str = "", refused: bool = False) -> None:
        super().__init__(message, hint)
        self.server, self.refused = server, refused

    def of(self, stack: str) -> "EngineEnded":
        """The same of a process that is one of the several of `stack`."""
        return EngineEnded(f"{stack}: {self.message}", self.hint, stack, self.refused)

    def __reduce__(self) -> tuple[type, tuple[str, str, str, bool]]:  # type: ignore[override]
        return type(self), (self.message, self.hint, self.server, self.refused)


def why_it_ended(process: EngineProcess) -> EngineEnded:
    """A process that was killed says nothing of why, so whatever its log held before does not count as the reason."""
    text, status = read_log(process.log_file), process.exit_status()
    if status is not None and -status in _FROM_OUTSIDE and not _ENDS_ITSELF.search(text):
        return EngineEnded(
            f"`{process.name}` was ended from outside, by {signal.Signals(-status).name}",
            f"the kernel's log says if memory ran out; what it did until then is in {process.log_file}",
            server=process.name,
        )
    said = last_error(text)
    return EngineEnded(
        f"`{process.name}` ended with status {status}; last error in its log: {f'`{said}`' if said else 'nothing'}",
        f"see {process.log_file}",
        server=process.name,
        refused=said is not None and not _NOT_ITS_FAULT.search(text),
    )


def read_log(file: Path) -> str:
    """Its end; empty when there is none."""
    try:
        with file.open("rb") as log_file:
            log_file.seek(max(0, file.stat().st_size - READ_BYTES))
            return log_file.read(READ_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""


def last_error(log_text: str) -> str | None:
    """The last line of the last exception, those that it came of included in it.

    SGLang's call of /freeze_gc before its port is open fails, and does no harm: that exception and its causes do not count.
    """
    last: str | None = None
    causes: list[str] = []
    lines = log_text.splitlines()
    for number, line in enumerate(lines):
        if not _EXCEPTION_LINE.match(line.strip()):
            continue
        causes.append(line.strip())
        if any(_CHAINED.match(after) for after in lines[number + 1 : number + 3]):
            continue
        if not any("/freeze_gc" in one for one in causes):
            last = causes[-1]
        causes = []
    return None if last is None else "".join(c if c.isprintable() else "?" for c in last[:MOST_SHOWN])


@contextmanager
def named_at_once() -> Iterator[None]:
    """Says who ended before what is torn down then: a teardown takes seconds."""
    try:
        yield
    except EngineEnded as ended:
        log.error("%s", ended.message)
        raise


def ended_within(ended: Callable[[], EngineEnded | None], within_s: float) -> EngineEnded | None:
    """What `ended` tells within so many seconds: a request fails a moment before its server is known to have ended."""
    until = time.monotonic() + within_s
    while (told := ended()) is None and time.monotonic() < until:
        time.sleep(POLL_S / 5)
    return told


async def while_running(work: Coroutine[Any, Any, Result], ended: Callable[[], EngineEnded | None]) -> Result:
    """The result of `work`, if nothing has ended until then. Cancels it and raises what `ended` tells as soon as it tells
    something."""
    task = asyncio.ensure_future(work)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=POLL_S)
            if (told := ended()) is not None:
                raise told from (task.exception() if done else None)
            if done:
                return task.result()
    finally:
        task.cancel()
