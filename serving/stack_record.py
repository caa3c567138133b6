"""What is written down of every running stack, so that it can be ended by somebody who did not start it.

One file a stack under `INFRA_AGENT_HOME/stacks`, written whole or not at all. `owner` is the process that a stack ends
with; a stack without an owner was detached by `stack up` and runs until `stack down`.
"""

import itertools
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from serving.home import home
from serving.identity import ProcessId, identity, this_machine
from serving.process import EngineProcess
from serving.recorded_process import RecordedProcess, identities
from serving.replicas import Replica
from serving.roles import Role

log = logging.getLogger(__name__)
_numbers = itertools.count()


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ReplicaRecord(_Record):
    """`leader`: the supervisor; `processes`: all that were seen; `shared`, `there_before`: files in shared memory."""

    name: str
    role: Role
    url: str
    ports: tuple[int, ...]
    log_file: str
    leader: ProcessId
    processes: tuple[ProcessId, ...]
    shared: tuple[str, ...]
    there_before: tuple[str, ...]

    def process(self) -> RecordedProcess:
        before, shared = (tuple(map(Path, files)) for files in (self.there_before, self.shared))
        return RecordedProcess(self.name, self.leader, self.processes, self.ports, frozenset(before), set(shared))


class StackRecord(_Record):
    """`url`: where clients ask. `ready_s`: from start to the first generated token, None before it. `digest`: of the spec."""

    name: str
    digest: str
    model: str
    url: str
    machine: str
    owner: ProcessId | None
    ready_s: float | None
    replicas: tuple[ReplicaRecord, ...]

    @property
    def is_here(self) -> bool:
        """Whether its pids mean anything: same boot, same container."""
        return self.machine == this_machine()


def folder() -> Path:
    made = home() / "stacks"
    made.mkdir(exist_ok=True)
    return made


def detached_file(name: str) -> Path:
    return folder() / f"{name}.json"


def owned_file() -> Path:
    """A file of its own for each stack that this process starts. No stack can be called so: names have no `_`."""
    return folder() / f"owned_{os.getpid()}-{next(_numbers)}.json"


def replica_records(replicas: Mapping[str, Replica], started: Mapping[str, EngineProcess]) -> tuple[ReplicaRecord, ...]:
    """As they are now: call it again when they have had children."""
    found = []
    for name, process in started.items():
        leader = identity(process.leader.pid)
        if leader is not None:
            found.append(
                ReplicaRecord(
                    name=name,
                    role=replicas[name].role,
                    url=replicas[name].url,
                    ports=process.ports,
                    log_file=str(process.log_file),
                    leader=leader,
                    processes=identities(process.alive()),
                    shared=tuple(sorted(map(str, process.shared))),
                    there_before=tuple(sorted(map(str, process.there_before))),
                )
            )
    return tuple(found)


def write(file: Path, record: StackRecord) -> None:
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    scratch.write_text(record.model_dump_json(indent=1), encoding="utf-8")
    os.replace(scratch, file)


def read(file: Path) -> StackRecord | None:
    """None when there is none, or one that cannot be read, which is said."""
    try:
        return StackRecord.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (ValidationError, OSError) as error:
        log.warning("the record %s cannot be read (%s); its stack, if it runs, must be ended by hand", file, error)
        return None


def records() -> dict[Path, StackRecord]:
    """Every record of this home that can be read, by file."""
    found = {file: read(file) for file in sorted(folder().glob("*.json"))}
    return {file: record for file, record in found.items() if record is not None}
