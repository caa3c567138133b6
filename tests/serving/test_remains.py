"""Only what was noted is ended: by pid and start time, on this machine, of an owner that is gone."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fake_stack import fake_stack, python

from serving.descendants import runs
from serving.detached import down, up
from serving.errors import Broken
from serving.identity import ProcessId, identity, still_there, this_machine
from serving.remains import reap
from serving.stack_record import ReplicaRecord, StackRecord, detached_file, folder, read, records, unreadable, write
from serving.temporary import new_folder


@pytest.fixture
def sleeper() -> Iterator[psutil.Process]:
    """Leads a session of its own, as a supervisor does."""
    with python("import time; print('up', flush=True); time.sleep(600)", start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield psutil.Process(process.pid)
        process.kill()


def known(pid: int, later_ticks: int = 0) -> ProcessId:
    found = identity(pid)
    assert found is not None
    return ProcessId(pid=pid, started_ticks=found.started_ticks + later_ticks)


GONE = ProcessId(pid=os.getpid(), started_ticks=1)
NO_FOLDER = "/nowhere/infra-agent-00000000"


def record(
    process: ProcessId, owner: ProcessId | None = GONE, machine: str | None = None, temporary: str = NO_FOLDER
) -> StackRecord:
    replica = ReplicaRecord(
        name="decode", role="decode", url="http://127.0.0.1:1", ports=(), log_file="", leader=process,
        processes=(process,), shared=(), there_before=(), temporary=temporary,
    )  # fmt: skip
    return StackRecord(
        name="s", digest="", model="", url="", machine=machine or this_machine(), owner=owner, ready_s=1.0,
        replicas=(replica,),
    )  # fmt: skip


def test_what_a_dead_owner_noted_is_ended_and_forgotten(sleeper: psutil.Process) -> None:
    write(folder() / "owned.json", record(known(sleeper.pid)))
    assert reap() == ["s"]
    assert not runs(sleeper)
    assert not records()


def test_temporary_files_of_what_a_dead_owner_noted_go_too(sleeper: psutil.Process, tmp_path: Path) -> None:
    left = new_folder({"TMPDIR": str(tmp_path)})
    (left / "socket").write_text("")
    write(folder() / "owned.json", record(known(sleeper.pid), temporary=str(left)))
    assert reap() == ["s"]
    assert not left.exists()


def test_a_process_that_was_given_the_pid_of_a_noted_one_is_left_alone(sleeper: psutil.Process) -> None:
    write(folder() / "owned.json", record(known(sleeper.pid, later_ticks=-1)))
    assert reap() == []
    assert runs(sleeper)
    assert not records()


@pytest.mark.parametrize("what", ["detached", "owned by a living process", "of another boot or container"])
def test_a_stack_that_is_not_left_over_is_left_alone(what: str, sleeper: psutil.Process) -> None:
    process = known(sleeper.pid)
    write(
        folder() / "one.json",
        {
            "detached": record(process, owner=None),
            "owned by a living process": record(process, owner=known(os.getpid())),
            "of another boot or container": record(process, machine="elsewhere/boot/1"),
        }[what],
    )
    assert reap() == []
    assert runs(sleeper)
    assert records()


def test_a_record_that_cannot_be_read_hides_no_other(sleeper: psutil.Process, caplog: pytest.LogCaptureFixture) -> None:
    (folder() / "damaged.json").write_text('{"name": ')
    write(folder() / "owned.json", record(known(sleeper.pid)))
    assert reap() == ["s"]
    assert "damaged.json cannot be read" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        {"field_of_another_version": 1},
        {"machine": "somewhere"},
        {"owner": {"pid": -1, "started_ticks": 1}},
        {"shared": ["/etc/passwd"]},
        {"shared": ["/dev/shm/../../etc/passwd"]},
        {"temporary": "/home"},
        {"temporary": "infra-agent-12345678"},
    ],
    ids=str,
)
def test_a_record_that_is_damaged_or_of_another_version_is_neither_obeyed_nor_overwritten(
    change: dict[str, object], sleeper: psutil.Process, tmp_path: Path
) -> None:
    spec = fake_stack(tmp_path)
    whole = record(known(sleeper.pid), owner=None).model_dump(mode="json")
    of_replica = {name: value for name, value in change.items() if name in ReplicaRecord.model_fields}
    changed = {**whole, "replicas": [{**whole["replicas"][0], **of_replica}]}
    content = json.dumps(changed if of_replica else {**changed, **change})
    detached_file(spec.name).write_text(content)
    for asked in (lambda: up(spec), lambda: down(spec.name)):
        with pytest.raises(Broken, match="cannot be read"):
            asked()
    assert runs(sleeper)
    assert detached_file(spec.name).read_text() == content
    assert unreadable() == [detached_file(spec.name)]


def test_a_stack_whose_record_cannot_be_written_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("serving.remains.write", full)
    with pytest.raises(Broken, match=r"cannot write the record .*No space left"):
        up(fake_stack(tmp_path))
    assert not records()


def test_a_record_is_written_whole_or_not_at_all(sleeper: psutil.Process, monkeypatch: pytest.MonkeyPatch) -> None:
    first = record(known(sleeper.pid))
    write(detached_file("s"), first)

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("serving.stack_record.os.replace", full)
    with pytest.raises(OSError, match="No space"):
        write(detached_file("s"), first.model_copy(update={"name": "other"}))
    assert read(detached_file("s")) == first
    assert list(folder().glob(".s.json.*")) == []


def test_a_process_is_known_by_its_pid_and_start_time(sleeper: psutil.Process) -> None:
    process = known(sleeper.pid)
    assert still_there(process) is not None
    assert still_there(known(sleeper.pid, later_ticks=1)) is None
    sleeper.kill()
    sleeper.wait(60)
    assert still_there(process) is None
    assert identity(2**31 - 1) is None


def test_a_note_from_before_the_last_boot_is_forgotten_and_nobody_is_ended(sleeper: psutil.Process) -> None:
    host = this_machine().split("/")[0]
    write(folder() / "owned.json", record(known(sleeper.pid), machine=f"{host}/earlier/1"))
    assert reap() == []
    assert runs(sleeper)
    assert not records()
