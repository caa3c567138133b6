"""A whole stack: encode, prefill and decode started together, the router when they are healthy, ready at its first token.

It ends in the opposite order when the block is left, however that happens. `bring_up` is also what `stack up` detaches.
"""

import logging
import shutil
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from serving.addresses import check_ports_free
from serving.checkpoint import Checkpoint, checkpoint
from serving.endings import EngineEnded, ended_within, named_at_once, while_running, why_it_ended
from serving.launch import Server, begin, part_of, with_variables
from serving.libraries import check_libraries
from serving.overlay import Overlay
from serving.process import EngineProcess, stop
from serving.readiness import generates, is_healthy, wait_while
from serving.remains import Note, reap
from serving.replicas import Replica, api_key, entry_of, reached_at, replicas_of
from serving.signals import signals_held_back, terminated_as_exception
from serving.stack import StackSpec
from serving.witness import NOTHING, Witness, watched

log = logging.getLogger(__name__)
Result = TypeVar("Result")
# A request fails a moment before its server is known to have ended.
LATE_S = 3.0


@dataclass(frozen=True)
class Deployment:
    """A stack that is ready. `url`: where clients ask, with `headers`. `ready_s`: from start to the first generated token."""

    spec: StackSpec
    url: str
    headers: Mapping[str, str] = field(repr=False)
    checkpoint: Checkpoint
    replicas: Mapping[str, Replica]
    processes: Mapping[str, EngineProcess]
    ready_s: float
    note: Note = field(repr=False)

    def ended(self) -> EngineEnded | None:
        """What to raise if one of the processes is no longer there."""
        gone = next((process for process in self.processes.values() if process.exit_status() is not None), None)
        return None if gone is None else why_it_ended(gone)

    async def watched(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`; cancels it and raises EngineEnded, naming the process, as soon as one has ended."""
        return await while_running(work, self.ended)


@contextmanager
def deployed(spec: StackSpec, run_dir: Path) -> Iterator[Deployment]:
    """The stack, ready, and gone when the block is left; what earlier owners left is ended first.

    Raises EngineEnded (a Broken) for a process that ends, before or inside the block, and Broken for a taken port or a
    timeout; BadInput for a checkpoint that is not there or a key that is not set.
    """
    with terminated_as_exception(), ExitStack() as teardown, named_at_once():
        reap()
        made = bring_up(spec, run_dir, teardown)
        try:
            yield made
        except Exception as error:
            ended = None if isinstance(error, EngineEnded) else ended_within(made.ended, LATE_S)
            if ended is not None:
                raise ended from error
            raise


@contextmanager
def deployed_together(
    specs: Mapping[str, StackSpec], run_dir: Path, overlays: Mapping[str, Overlay] | None = None
) -> Iterator[dict[str, Server]]:
    """Stacks of several roles by name, started one after the other and all ready; gone when the block is left.

    A stack with an entry in `overlays` runs that code in all its engine processes; what is looked at is the same in all
    stacks. Raises as `deployed`; an EngineEnded names the stack, and its message the role.
    """
    laid = overlays or {}
    watching = next(iter(laid.values()), NOTHING)
    with terminated_as_exception(), ExitStack() as teardown, named_at_once():
        reap()
        for spec in specs.values():
            check_ports_free(spec)
        for name in laid:
            teardown.callback(shutil.rmtree, run_dir / name / "overlay", ignore_errors=True)
        made: dict[str, Server] = {}
        for name, spec in specs.items():
            device = str(spec.roles["decode"].arguments.get("device"))
            witness, variables = watched(run_dir / name, device, watching, laid.get(name))
            try:
                made[name] = server_of(name, bring_up(spec, run_dir / name, teardown, variables=variables), witness)
            except EngineEnded as ended:
                raise ended.of(name) from ended
        yield made


def server_of(name: str, made: Deployment, witness: Witness) -> Server:
    """The deployment as one arm of a comparison; what stands before its parts is the router, which starts last."""
    parts = tuple(part_of(made.replicas[own], process) for own, process in made.processes.items())
    entry = parts[-1]
    return Server(
        name=name,
        base_url=made.url,
        pid=entry.pid,
        log_file=entry.log_file,
        argv=made.spec.argv(entry.role),
        checkpoint=made.checkpoint,
        ready_s=made.ready_s,
        process=entry.process,
        witness=witness,
        parts=parts,
    )


def bring_up(
    spec: StackSpec,
    run_dir: Path,
    teardown: ExitStack,
    file: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> Deployment:
    """Starts everything and waits until it answers; what has to be undone is in `teardown`, whatever happens.

    `file`: where it is written down, by default in a file of this process. `variables`: for all engine processes.
    """
    check_ports_free(spec)
    check_libraries(spec)
    model = checkpoint(spec.model)
    replicas = {
        replica.name: replica if replica.role == "router" else with_variables(replica, variables or {})
        for replica in replicas_of(spec, model.folder, run_dir)
    }
    key, started = api_key(spec), dict[str, EngineProcess]()
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    note = Note.owned(spec, replicas, started, file)
    teardown.callback(note.forget)
    begun = time.monotonic()
    for first in (True, False):
        group = [replica for replica in replicas.values() if (replica.role != "router") == first]
        _start(group, started, run_dir, teardown)
        elsewhere = [url for role in spec.roles if spec.roles[role].url for url in reached_at(spec, role)]
        _wait_until_healthy(
            group, elsewhere if first else [], started, spec.ready_timeout_s - time.monotonic() + begun, note
        )
    entry = entry_of(spec)
    wait_while(
        lambda: [] if generates(entry, headers) else [f"a token from {entry}"],
        started,
        spec.ready_timeout_s - time.monotonic() + begun,
        note.write,
    )
    for process in started.values():
        process.observe()  # the first request may have made files in shared memory
    note.ready_s = time.monotonic() - begun
    note.write()
    log.info("%s: ready after %.0f s, at %s", spec.name, note.ready_s, entry)
    return Deployment(spec, entry, headers, model, replicas, started, note.ready_s, note)


def _start(group: list[Replica], started: dict[str, EngineProcess], run_dir: Path, teardown: ExitStack) -> None:
    mine: list[EngineProcess] = []
    teardown.callback(stop, mine)
    for replica in group:
        with signals_held_back():
            started[replica.name] = begin(replica, run_dir)
            mine.append(started[replica.name])


def _wait_until_healthy(
    group: list[Replica], elsewhere: list[str], started: Mapping[str, EngineProcess], timeout_s: float, note: Note
) -> None:
    """Until each process of the group listens on its own port and is healthy, and so are the servers that run elsewhere."""
    left = {replica.name: replica for replica in group}
    others = set(elsewhere)

    def waiting() -> list[str]:
        for name, replica in list(left.items()):
            if started[name].listener() is not None and is_healthy(replica.url):
                del left[name]
        others.difference_update([url for url in others if is_healthy(url)])
        return [*left, *others]

    wait_while(waiting, started, timeout_s, note.write)
