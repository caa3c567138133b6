"""What of a recorded stack runs, listens and answers now, and what it takes."""

import contextlib
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal

import psutil
from pydantic import BaseModel, ConfigDict

from serving.breakers import named, router_metrics, shut_out
from serving.endings import last_error, read_log
from serving.errors import Broken
from serving.identity import still_there
from serving.metrics import scrape
from serving.ports import listening
from serving.readiness import is_healthy
from serving.recorded_process import RecordedProcess
from serving.roles import Role
from serving.stack_record import ReplicaRecord, StackRecord

Health = Literal["healthy", "no answer", "ended", "shut out"]
_ILL: dict[Health, str] = {"ended": "ended", "no answer": "does not answer", "shut out": "is shut out by the router"}
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


class _Status(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ReplicaStatus(_Status):
    """`pid`: the process that listens on the first of `ports`; `ports`: on which its processes listen, with addresses.

    `health`: shut out is one that is healthy itself, and the router sends it nothing.
    `memory_mb`: proportional set size of its processes, so that pages they share count once; None where it may not be read.
    """

    name: str
    role: Role
    health: Health
    pid: int | None
    processes: int
    ports: dict[int, str]
    memory_mb: float | None
    last_error: str | None
    log_file: str


class StackStatus(_Status):
    """`state`: up when every process is there and healthy; elsewhere: on another boot or container, nothing is known.

    `shut_out`: the workers, by name or URL, that the router sends nothing to; None where it does not tell.
    """

    name: str
    state: Literal["up", "starting", "in part", "ended", "elsewhere"]
    detached: bool
    owner_pid: int | None
    url: str
    shut_out: tuple[str, ...] | None
    replicas: tuple[ReplicaStatus, ...]


def status_of(record: StackRecord) -> StackStatus:
    """Looks at the processes and asks each for its health; changes nothing."""
    without = _shut_out(record) if record.is_here else None
    replicas = tuple(_replica(replica, without or ()) for replica in record.replicas) if record.is_here else ()
    return StackStatus(
        name=record.name,
        state=_state(record, replicas),
        detached=record.owner is None,
        owner_pid=None if record.owner is None else record.owner.pid,
        url=record.url,
        shut_out=without,
        replicas=replicas,
    )


def fault_of(status: StackStatus) -> Broken | None:
    """What to raise for a stack that is not wholly up: which roles are not as they should be, and what to do."""
    what, killed = f"stack `{status.name}`", "if that was killed, `infra-agent stack reap`"
    match status.state:
        case "up":
            return None
        case "starting":
            return Broken(f"{what} is starting", f"wait until the command that starts it is done; {killed}")
        case "elsewhere":
            return Broken(f"{what} is on another machine or in another container", "look at it and end it there")
    ill = ", ".join(f"`{one.name}` {_ILL[one.health]}" for one in status.replicas if one.health in _ILL)
    if status.detached:
        return Broken(f"{what} is not wholly up: {ill}", f"infra-agent stack down {status.name}")
    return Broken(f"{what} is not wholly up: {ill}", f"it ends with the command that started it; {killed}")


def _shut_out(record: StackRecord) -> tuple[str, ...] | None:
    names = {replica.url: replica.name for replica in record.replicas}
    places = [router_metrics(one.url, one.ports) for one in record.replicas if one.role == "router"]
    if not places or places[0] is None:
        return None
    try:
        return named(shut_out(scrape(places[0])), names)
    except Broken:
        return None


def _state(
    record: StackRecord, replicas: tuple[ReplicaStatus, ...]
) -> Literal["up", "starting", "in part", "ended", "elsewhere"]:
    if not record.is_here:
        return "elsewhere"
    if all(replica.health == "ended" for replica in replicas):
        return "ended"
    if record.ready_s is None:
        return "starting"
    return "up" if all(replica.health == "healthy" for replica in replicas) else "in part"


def _replica(record: ReplicaRecord, shut_out: Collection[str]) -> ReplicaStatus:
    process: RecordedProcess = record.process()
    alive = process.alive()
    ports = listening({found.pid for found in alive})
    gone = still_there(record.leader) is None
    pid = next((owner for owner, address, port in ports if port in record.ports[:1]), None)
    health: Health = "ended" if gone else "no answer"
    if not gone and pid is not None and is_healthy(record.url):
        health = "shut out" if record.name in shut_out else "healthy"
    return ReplicaStatus(
        name=record.name,
        role=record.role,
        health=health,
        pid=pid,
        processes=len(alive),
        ports={port: address for _, address, port in sorted(ports, key=lambda x: x[2])},
        memory_mb=_memory_mb(alive),
        last_error=last_error(read_log(Path(record.log_file))) if gone else None,
        log_file=record.log_file,
    )


def _memory_mb(processes: Iterable[psutil.Process]) -> float | None:
    total_kb = 0
    for process in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            try:
                found = _PSS.search(Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii"))
            except PermissionError:
                return None
            total_kb += int(found[1]) if found else 0
    return round(total_kb / 1024, 1)
