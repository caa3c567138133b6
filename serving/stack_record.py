"""What is written down of every running stack, so that it can be ended by somebody who did not start it.

One file a stack under `INFRA_AGENT_HOME/stacks`, written whole or not at all. `owner` is the process that a stack ends
with; a stack without an owner was detached by `stack up` and runs until `stack down`.
"""

import itertools
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from serving.descendants import SHARED_MEMORY
from serving.errors import Broken
from serving.home import home
from serving.identity import ProcessId, identity, this_machine
from serving.process import EngineProcess
from serving.recorded_process import RecordedProcess, identities
from serving.replicas import Replica
from serving.roles import Role
from serving.temporary import is_one

log = logging.getLogger(__name__)
_numbers = itertools.count()


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _in_shared_memory(file: str) -> str:
    if Path(file).parent != SHARED_MEMORY or Path(file).name in ("", ".", ".."):
        raise ValueError(f"is no file in {SHARED_MEMORY}, and what is noted is removed with its stack")
    return file


def _of_an_engine(folder: str) -> str:
    if not is_one(Path(folder)):
        raise ValueError("is no folder of an engine, and what is noted is removed with its stack")
    return folder


SharedFile = Annotated[str, AfterValidator(_in_shared_memory)]
TemporaryFolder = Annotated[str, AfterValidator(_of_an_engine)]


class ReplicaRecord(_Record):
    """`leader`: the supervisor; `processes`: all that were seen; `shared`, `there_before`: files in shared memory;
    `temporary`: the folder for its temporary files.
    """

    name: str
    role: Role
    url: str
    ports: tuple[int, ...]
    log_file: str
    leader: ProcessId
    processes: tuple[ProcessId, ...]
    shared: tuple[SharedFile, ...]
    there_before: tuple[str, ...]
    temporary: TemporaryFolder

    def process(self) -> RecordedProcess:
        before, shared = (tuple(map(Path, files)) for files in (self.there_before, self.shared))
        host = urlsplit(self.url).hostname or "127.0.0.1"
        known = (self.leader, self.processes, self.ports, frozenset(before), set(shared), Path(self.temporary), host)
        return RecordedProcess(self.name, *known)


class StackRecord(_Record):
    """`url`: where clients ask. `ready_s`: from start to the first generated token, None before it. `digest`: of the spec."""

    name: str
    digest: str
    model: str
    url: str
    machine: Annotated[str, Field(pattern=r"^[^/]+/[^/]+/[^/]+$")]
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
                    temporary=str(process.temporary),
                )
            )
    return tuple(found)


def write(file: Path, record: StackRecord) -> None:
    """Whole or not at all. Raises OSError."""
    scratch = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        scratch.write_text(record.model_dump_json(indent=1), encoding="utf-8")
        os.replace(scratch, file)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def read(file: Path) -> StackRecord | None:
    """None when there is none. Raises Broken for one that cannot be read: its stack may run."""
    try:
        return StackRecord.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (ValidationError, OSError) as error:
        why = str(error.errors()[0]["msg"]) if isinstance(error, ValidationError) else str(error)
        raise Broken(
            f"the record {file} cannot be read ({why}), so whether its stack runs is not known",
            "use the infra-agent that wrote it, or end the stack by hand and remove the record",
        ) from error


def records() -> dict[Path, StackRecord]:
    """Every record of this home that can be read, by file; the others are said."""
    found = {}
    for file in sorted(folder().glob("*.json")):
        try:
            record = read(file)
        except Broken as unreadable:
            log.warning("%s", unreadable.message)
            continue
        if record is not None:
            found[file] = record
    return found


def unreadable() -> list[Path]:
    """The records of this home of which nothing is known."""
    return sorted(set(folder().glob("*.json")) - records().keys())
