"""Starts the servers of a stack, waits until each has generated a token, and always takes them down again."""

import logging
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import httpx

from serving.checkpoint import Checkpoint, checkpoint
from serving.engine_env import engine, process_environment
from serving.errors import BadInput, Broken
from serving.process import EngineProcess, start, stop
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


@dataclass(frozen=True)
class Server:
    """A running server. `ready_s`: seconds from start to the first generated token."""

    name: str
    base_url: str
    pid: int
    log_file: Path
    argv: tuple[str, ...]
    checkpoint: Checkpoint
    ready_s: float
    process: EngineProcess

    def ended(self) -> EngineEnded | None:
        """What to raise if the server is no longer there."""
        return None if self.process.exit_status() is None else _why_it_ended(self.process)


@contextmanager
def running(spec: StackSpec, run_dir: Path, name: str) -> Iterator[Server]:
    """The server of `spec`, ready. Raises Broken when it does not come up; see `running_together`."""
    with running_together({name: spec}, run_dir) as servers:
        yield servers[name]


@contextmanager
def running_together(specs: Mapping[str, StackSpec], run_dir: Path) -> Iterator[dict[str, Server]]:
    """All servers by name, started at the same time and all ready; gone when the block is left in whatever way.

    Raises Broken for a taken port and a timeout, EngineEnded (a Broken) for a server that ends early. That one waits
    until every other server is ready or has ended too, and names the first of `specs` that ended.
    """
    with _terminated_as_exception(), ExitStack() as teardown:
        found = {name: checkpoint(spec.model) for name, spec in specs.items()}
        started: dict[str, EngineProcess] = {}
        teardown.callback(lambda: stop(list(started.values())))
        for name, spec in specs.items():
            with _signals_held_back():
                started[name] = _start(name, spec, found[name], run_dir)
        ready_s = _wait_until_ready(specs, started)
        yield {
            name: Server(
                name=name,
                base_url=f"http://127.0.0.1:{process.port}",
                pid=process.leader.pid,
                log_file=process.log_file,
                argv=specs[name].argv("server"),
                checkpoint=found[name],
                ready_s=ready_s[name],
                process=process,
            )
            for name, process in started.items()
        }


def _start(name: str, spec: StackSpec, model: Checkpoint, run_dir: Path) -> EngineProcess:
    role = spec.roles["server"]
    if role.count != 1:
        raise BadInput(
            f"`roles.server.count` is `{role.count}`: one server is all that can be started now", "set it to 1"
        )
    own = ["--model-path", str(model.folder), "--host", "127.0.0.1", "--port", str(role.port)]
    command = [str(engine().python), "-P", "-m", "sglang.launch_server", *own, *spec.argv("server")]
    # Through a file, because torch's TCP store listens on every interface whatever address it is given.
    meeting = {"SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE": f"file://{(run_dir / name / 'rendezvous').resolve()}"}
    environment = process_environment(str(role.arguments.get("device")), meeting | role.environment)
    process = start(name, command, environment, role.port, run_dir)
    log.info("%s: starting on port %d, log in %s", name, role.port, process.log_file)
    return process


def _wait_until_ready(specs: Mapping[str, StackSpec], started: Mapping[str, EngineProcess]) -> dict[str, float]:
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
                ended[name] = _why_it_ended(process)
            elif _generates(process):
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


def _why_it_ended(process: EngineProcess) -> EngineEnded:
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


@contextmanager
def _terminated_as_exception() -> Iterator[None]:
    """SIGTERM unwinds the stack like Ctrl-C does, where Python lets us say so (the main thread)."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours:
        yield
        return

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """No Ctrl-C between the birth of a process and the note that it must be taken down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
