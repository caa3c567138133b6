"""The note that a running stack leaves of itself, and `reap`, which ends what a killed owner left by what was noted."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.errors import Broken
from serving.identity import ProcessId, identity, still_there, this_machine, was_before_boot
from serving.process import EngineProcess, stop
from serving.replicas import Replica, entry_of
from serving.stack import StackSpec
from serving.stack_record import StackRecord, owned_file, records, replica_records, write

log = logging.getLogger(__name__)


@dataclass
class Note:
    """The record of a stack that this process starts; `started` fills while it does. None as an owner: detached."""

    file: Path
    spec: StackSpec
    replicas: Mapping[str, Replica]
    started: Mapping[str, EngineProcess]
    owner: ProcessId | None
    ready_s: float | None = None
    written: StackRecord | None = None

    @classmethod
    def owned(
        cls,
        spec: StackSpec,
        replicas: Mapping[str, Replica],
        started: Mapping[str, EngineProcess],
        file: Path | None = None,
    ) -> "Note":
        return cls(file or owned_file(), spec, replicas, started, identity(os.getpid()))

    def write(self) -> None:
        """Brings the record up to date, if anything has changed. Raises Broken where it cannot be written."""
        now = StackRecord(
            name=self.spec.name,
            digest=self.spec.digest,
            model=self.spec.model,
            url=entry_of(self.spec),
            machine=this_machine(),
            owner=self.owner,
            ready_s=self.ready_s,
            replicas=replica_records(self.replicas, self.started),
        )
        if now != self.written:
            try:
                write(self.file, now)
            except OSError as error:
                hint = "without it nobody could end the stack: make room, or set `INFRA_AGENT_HOME`"
                raise Broken(f"cannot write the record `{self.file}`: {error}", hint) from error
            self.written = now

    def forget(self) -> None:
        """Removes the record, unless something of the stack is still there to be ended."""
        if not any(process.alive() for process in self.started.values()):
            self.file.unlink(missing_ok=True)


def reap() -> list[str]:
    """Ends what owners left that were killed, and says which stacks those were.

    Never a stack whose owner lives or that was detached, and only processes that were noted, by pid and start time.
    Raises Broken when something does not end.
    """
    ended = []
    for file, record in records().items():
        if record.owner is not None and was_before_boot(record.machine):
            file.unlink(missing_ok=True)
        if record.owner is None or not record.is_here or still_there(record.owner) is not None:
            continue
        left = [replica.process() for replica in record.replicas]
        if any(process.alive() for process in left):
            log.info("ending what process %d left of stack %s", record.owner.pid, record.name)
            ended.append(record.name)
        stop(left, drain_s=0)
        file.unlink(missing_ok=True)
    return ended
