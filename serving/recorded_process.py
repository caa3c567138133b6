"""An engine process that somebody else started and wrote down: how `down` and `reap` get hold of it, without a name."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from serving.descendants import end_at_once, members, shared_memory_of
from serving.identity import ProcessId, identity, still_there


@dataclass
class RecordedProcess:
    """`leader`: its supervisor; `known`: every process of it that was written down; the rest as in `EngineProcess`."""

    name: str
    leader: ProcessId
    known: tuple[ProcessId, ...]
    ports: tuple[int, ...]
    there_before: frozenset[Path]
    shared: set[Path]
    temporary: Path
    host: str
    seen: set[ProcessId] = field(default_factory=set)

    def alive(self) -> list[psutil.Process]:
        """What still runs of it: the written-down ones, the session of the leader, and what they have started."""
        self.seen |= {*self.known, self.leader}
        found = {process for known in self.seen if (process := still_there(known)) is not None}
        if identity(self.leader.pid) in (None, self.leader):
            # As long as a process is in the session, nobody else is given the session's number.
            found |= members(self.leader.pid)
        for process in list(found):
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= set(process.children(recursive=True))
        self.seen |= {known for process in found if (known := identity(process.pid)) is not None}
        return [process for known in self.seen if (process := still_there(known)) is not None]

    def observe(self) -> None:
        """Takes note of the shared memory that would have to be cleared away."""
        self.shared |= {file for process in self.alive() for file in shared_memory_of(process)} - self.there_before

    def ask(self) -> None:
        """Asks the leader to end; it hands that on to the engine."""
        if (leader := still_there(self.leader)) is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                leader.terminate()

    def kill(self) -> None:
        self.shared |= end_at_once(self.alive) - self.there_before

    def let_go(self) -> None:
        """Nothing is held: its parent, whoever that is by now, reaps the leader."""


def identities(processes: Iterable[psutil.Process]) -> tuple[ProcessId, ...]:
    """In the order of their pids; one that has just ended is left out."""
    return tuple(sorted((known for p in processes if (known := identity(p.pid)) is not None), key=lambda x: x.pid))
