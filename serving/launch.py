"""Starts the servers of a stack, waits until each has generated a token, and always takes them down again."""

import logging
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from serving.checkpoint import Checkpoint, checkpoint
from serving.derive import derived_environment
from serving.engine_env import MEETING, engine, process_environment
from serving.overlay import Overlay
from serving.process import EngineProcess, start, stop
from serving.readiness import EngineEnded, wait_until_ready, why_it_ended
from serving.stack import StackSpec
from serving.witness import NOTHING, Witness, watched

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Server:
    """A running server. `pid`: the process that listens. `ready_s`: seconds from start to the first generated token.

    `witness`: what its processes tell of themselves.
    """

    name: str
    base_url: str
    pid: int
    log_file: Path
    argv: tuple[str, ...]
    checkpoint: Checkpoint
    ready_s: float
    process: EngineProcess
    witness: Witness

    def ended(self) -> EngineEnded | None:
        """What to raise if the server is no longer there."""
        return None if self.process.exit_status() is None else why_it_ended(self.process)


def check_answering(servers: Iterable[Server]) -> None:
    """Raises Broken when somebody else than a server answers on its port."""
    for server in servers:
        server.process.listener()


@contextmanager
def running(spec: StackSpec, run_dir: Path, name: str) -> Iterator[Server]:
    """The server of `spec`, ready. Raises Broken when it does not come up; see `running_together`."""
    with running_together({name: spec}, run_dir) as servers:
        yield servers[name]


@contextmanager
def running_together(
    specs: Mapping[str, StackSpec], run_dir: Path, overlays: Mapping[str, Overlay] | None = None
) -> Iterator[dict[str, Server]]:
    """All servers by name, started at the same time and all ready; gone when the block is left in whatever way.

    A server with an entry in `overlays` runs that code; what is looked at is the same in every server.

    Raises Broken for a taken port, a stranger on it and a timeout, EngineEnded (a Broken) for a server that ends early.
    That one waits until every other server is ready or has ended too, and names the first of `specs` that ended.
    """
    with _terminated_as_exception(), ExitStack() as teardown:
        found = {name: checkpoint(spec.model) for name, spec in specs.items()}
        started: dict[str, EngineProcess] = {}
        witnesses: dict[str, Witness] = {}
        laid = overlays or {}
        for name in laid:
            teardown.callback(shutil.rmtree, run_dir / name / "overlay", ignore_errors=True)
        watching = next(iter(laid.values()), NOTHING)
        teardown.callback(lambda: stop(list(started.values())))
        for name, spec in specs.items():
            device = str(spec.roles["server"].arguments.get("device"))
            witnesses[name], variables = watched(run_dir / name, device, watching, laid.get(name))
            with _signals_held_back():
                started[name] = _start(name, spec, found[name], run_dir, variables)
        ready_s = wait_until_ready(specs, started)
        yield {
            name: Server(
                name=name,
                base_url=f"http://127.0.0.1:{process.port}",
                pid=process.listener() or process.leader.pid,
                log_file=process.log_file,
                argv=specs[name].argv("server"),
                checkpoint=found[name],
                ready_s=ready_s[name],
                process=process,
                witness=witnesses[name],
            )
            for name, process in started.items()
        }


def _start(name: str, spec: StackSpec, model: Checkpoint, run_dir: Path, variables: Mapping[str, str]) -> EngineProcess:
    role, port = spec.roles["server"], spec.port_of("server")
    own = ["--model-path", str(model.folder), "--host", "127.0.0.1", "--port", str(port)]
    command = [str(engine().python), "-P", "-m", "sglang.launch_server", *own, *spec.argv("server")]
    meeting = {MEETING: f"file://{(run_dir / name / 'rendezvous').resolve()}"}
    decided = {**derived_environment(spec, "server"), **meeting, **variables}
    environment = process_environment(str(role.arguments.get("device")), role.environment, decided)
    process = start(name, command, environment, port, run_dir)
    log.info("%s: starting on port %d, log in %s", name, port, process.log_file)
    return process


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
