"""Starts single servers at the same time, waits until each has generated a token, and always takes them down again."""

import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from serving.checkpoint import Checkpoint, checkpoint
from serving.endings import EngineEnded, named_at_once, why_it_ended
from serving.overlay import Overlay
from serving.process import EngineProcess, start, stop
from serving.readiness import wait_until_ready
from serving.remains import Note, reap
from serving.replicas import Replica, replicas_of
from serving.roles import Role
from serving.signals import signals_held_back, terminated_as_exception
from serving.stack import StackSpec
from serving.witness import NOTHING, Witness, watched

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """One process of a deployment. `pid`: the process that listens."""

    name: str
    role: Role
    url: str
    pid: int
    log_file: Path
    process: EngineProcess


@dataclass(frozen=True)
class Server:
    """A running deployment, asked at `base_url`: the one server, or the router before its `parts`.

    `pid`: the process that listens there. `ready_s`: seconds from start to the first generated token. `witness`: what its
    processes tell of themselves.
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
    parts: tuple[Part, ...] = ()

    def ended(self) -> EngineEnded | None:
        """What to raise if one of its processes is no longer there."""
        processes = [part.process for part in self.parts] or [self.process]
        gone = next((process for process in processes if process.exit_status() is not None), None)
        if gone is None:
            return None
        told = why_it_ended(gone)
        return told.of(self.name) if self.parts[1:] else told


def check_answering(servers: Iterable[Server]) -> None:
    """Raises Broken when somebody else than a server answers on its port."""
    for server in servers:
        for process in [part.process for part in server.parts] or [server.process]:
            process.listener()


def part_of(replica: Replica, process: EngineProcess) -> Part:
    pid = process.listener() or process.leader.pid
    return Part(replica.name, replica.role, replica.url, pid, process.log_file, process)


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
    with terminated_as_exception(), ExitStack() as teardown, named_at_once():
        reap()
        found = {name: checkpoint(spec.model) for name, spec in specs.items()}
        replicas = {name: _server(name, spec, found[name], run_dir) for name, spec in specs.items()}
        started: dict[str, EngineProcess] = {}
        witnesses: dict[str, Witness] = {}
        laid = overlays or {}
        for name in laid:
            teardown.callback(shutil.rmtree, run_dir / name / "overlay", ignore_errors=True)
        watching = next(iter(laid.values()), NOTHING)
        note = Note.owned(next(iter(specs.values())), replicas, started)
        teardown.callback(note.forget)
        teardown.callback(lambda: stop(list(started.values())))
        for name, replica in replicas.items():
            device = str(specs[name].roles["server"].arguments.get("device"))
            witnesses[name], variables = watched(run_dir / name, device, watching, laid.get(name))
            with signals_held_back():
                started[name] = begin(with_variables(replica, variables), run_dir)
        ready_s = wait_until_ready(specs, started, note.write)
        yield {
            name: Server(
                name=name,
                base_url=replicas[name].url,
                pid=process.listener() or process.leader.pid,
                log_file=process.log_file,
                argv=specs[name].argv("server"),
                checkpoint=found[name],
                ready_s=ready_s[name],
                process=process,
                witness=witnesses[name],
                parts=(part_of(replicas[name], process),),
            )
            for name, process in started.items()
        }


def with_variables(replica: Replica, variables: Mapping[str, str]) -> Replica:
    """The same replica with these variables; a PYTHONPATH goes before the one that it has."""
    changed = {**replica.environment, **variables}
    paths = [found["PYTHONPATH"] for found in (variables, replica.environment) if "PYTHONPATH" in found]
    return replace(replica, environment={**changed, **({"PYTHONPATH": ":".join(paths)} if paths else {})})


def begin(replica: Replica, run_dir: Path) -> EngineProcess:
    """Starts the replica. Raises Broken when one of its ports is taken."""
    process = start(
        replica.name, replica.command, replica.environment, replica.port, run_dir, replica.other_ports, replica.host
    )
    log.info("%s: starting on port %d, log in %s", replica.name, replica.port, process.log_file)
    return process


def _server(name: str, spec: StackSpec, model: Checkpoint, run_dir: Path) -> Replica:
    (replica,) = replicas_of(spec, model.folder, run_dir, server_name=name)
    return replica
