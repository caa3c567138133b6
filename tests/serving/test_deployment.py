"""A whole stack, with a fake engine: started in order, watched, and gone afterwards, however that comes about."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from fake_stack import ROLES, fake_stack, python, stack_file, wait_until

from serving.deployment import Deployment, deployed
from serving.descendants import runs
from serving.endings import EngineEnded
from serving.errors import BadInput, Broken
from serving.identity import identity
from serving.ports import listening, port_is_free
from serving.remains import reap
from serving.stack_record import StackRecord, records


@pytest.fixture(autouse=True)
def short_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.process.DRAIN_S", 5.0)


def everyone(made: Deployment) -> list[psutil.Process]:
    return [process for engine in made.processes.values() for process in engine.alive()]


def listener(made: Deployment, name: str) -> int:
    pid = made.processes[name].listener()
    assert pid is not None
    return pid


def test_a_stack_answers_through_its_router_on_loopback_only_and_leaves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    spec = fake_stack(tmp_path)
    with deployed(spec, tmp_path / "run") as made:
        assert list(made.processes) == list(ROLES)
        body = {"input_ids": [5, 6], "sampling_params": {"max_new_tokens": 3}}
        assert len(httpx.post(f"{made.url}/generate", json=body).json()["output_ids"]) == 3
        processes = everyone(made)
        addresses = {address for _, address, _ in listening({process.pid for process in processes})}
        assert addresses == {"127.0.0.1"}  # although the fake engine asks for every address
        (record,) = records().values()
        assert record.owner == identity(os.getpid())
    assert not any(runs(process) for process in processes)
    assert all(port_is_free(port) for engine in made.processes.values() for port in engine.ports)
    assert not records()
    said = [record.message for record in caplog.records if record.message.startswith("stopped")]
    assert said == ["stopped: router", "stopped: encode, prefill, decode"]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_that_is_killed_during_traffic_is_named_before_all_else_is_torn_down(
    role: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seen: list[psutil.Process] = []

    def serve() -> None:
        with deployed(fake_stack(tmp_path), tmp_path / "run") as made:
            seen.extend(everyone(made))

            async def traffic() -> None:
                os.kill(listener(made, role), signal.SIGKILL)
                await asyncio.sleep(600)

            asyncio.run(made.watched(traffic()))

    with pytest.raises(EngineEnded, match=f"`{role}` was ended from outside, by SIGKILL") as ended:
        serve()
    assert ended.value.server == role
    assert not ended.value.refused
    assert not any(runs(process) for process in seen)
    said = [record.message for record in caplog.records]
    assert said.index(ended.value.message) < said.index("stopped: router")


def test_a_stack_on_another_address_of_this_machine_becomes_ready_there(tmp_path: Path) -> None:
    spec = fake_stack(tmp_path)
    roles = {role: part.model_copy(update={"host": "127.0.0.2"}) for role, part in spec.roles.items()}
    with deployed(spec.model_copy(update={"roles": roles}), tmp_path / "run") as made:
        pids = {process.pid for name in ROLES for process in made.processes[name].alive()}
        assert {address for _, address, _ in listening(pids)} == {"127.0.0.2"}
        assert made.url.startswith("http://127.0.0.2:")


def test_work_that_is_watched_gives_its_result(tmp_path: Path) -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    with deployed(fake_stack(tmp_path), tmp_path / "run") as made:
        assert asyncio.run(made.watched(work())) == 7


def test_a_request_that_fails_because_a_role_was_killed_becomes_the_name_of_that_role(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def ask_a_dead_router() -> None:
        with deployed(fake_stack(tmp_path), tmp_path / "run") as made:
            os.kill(listener(made, "router"), signal.SIGKILL)
            wait_until(lambda: port_is_free(made.processes["router"].port))
            httpx.get(f"{made.url}/health")

    with pytest.raises(EngineEnded, match="`router`") as ended:
        ask_a_dead_router()
    assert isinstance(ended.value.__cause__, httpx.TransportError)
    assert ended.value.message in caplog.messages


def test_an_error_of_the_block_itself_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.deployment.LATE_S", 0.0)
    with pytest.raises(ZeroDivisionError), deployed(fake_stack(tmp_path), tmp_path / "run"):
        _ = 1 / 0


def test_a_role_that_cannot_start_is_named_with_its_last_error_and_the_router_never_starts(tmp_path: Path) -> None:
    spec = fake_stack(tmp_path, {"decode": {"SGLANG_FAKE_ERROR": "planted"}})
    with pytest.raises(EngineEnded, match=r"`decode`.*planted"), deployed(spec, tmp_path / "run"):
        pass
    assert not (tmp_path / "run" / "router.log").exists()
    assert not records()


def test_a_role_that_does_not_become_healthy_is_named(tmp_path: Path) -> None:
    spec = fake_stack(tmp_path, {"prefill": {"SGLANG_FAKE_DEAF": "1"}}, ready_timeout_s=8)
    with pytest.raises(Broken, match=r"^`prefill` not ready after"), deployed(spec, tmp_path / "run"):
        pass


@pytest.mark.parametrize("port", ["roles.decode.port", "roles.prefill.bootstrap_port", "roles.router.prometheus_port"])
def test_a_port_that_is_taken_is_broken_with_its_role_named_before_anything_starts(port: str, tmp_path: Path) -> None:
    spec = fake_stack(tmp_path)
    _, role, field = port.split(".")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", getattr(spec.roles[role], field)))  # type: ignore[index]
        taken.listen()
        with pytest.raises(Broken, match=f"is taken, so `{role}` cannot start"), deployed(spec, tmp_path / "run"):
            pass
    assert not (tmp_path / "run").exists()
    assert not records()


def test_a_key_is_asked_for_and_stands_on_no_command_line_in_no_log_and_in_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    spec = fake_stack(tmp_path, api_key_variable="STACK_KEY")
    with pytest.raises(BadInput, match="`STACK_KEY` is not set"), deployed(spec, tmp_path / "run"):
        pass
    monkeypatch.setenv("STACK_KEY", "very-secret")
    with deployed(spec, tmp_path / "run") as made:
        body = {"input_ids": [5], "sampling_params": {"max_new_tokens": 1}}
        assert httpx.post(f"{made.url}/generate", json=body).status_code == 401
        assert httpx.post(f"{made.url}/generate", json=body, headers=made.headers).status_code == 200
        assert not any("very-secret" in word for process in everyone(made) for word in process.cmdline())
        written = [file.read_text() for file in (*records(), *(tmp_path / "run").glob("*.log"))]
        assert not any("very-secret" in text for text in (*written, caplog.text, repr(made)))


OWNER = """
import sys, time
from pathlib import Path
from serving.deployment import deployed
from serving.stack import load_stack
with deployed(load_stack(Path(sys.argv[1])), Path(sys.argv[2])) as made:
    print(*(p.pid for e in made.processes.values() for p in e.alive()), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def owner_record(tmp_path: Path) -> Iterator[tuple[StackRecord, list[psutil.Process], psutil.Process]]:
    """A stack that another process owns: its record, its processes, and the owner."""
    with python(OWNER, str(stack_file(tmp_path)), str(tmp_path / "run")) as owner:
        assert owner.stdout is not None
        processes = [psutil.Process(int(pid)) for pid in owner.stdout.readline().split()]
        (record,) = records().values()
        yield record, processes, psutil.Process(owner.pid)
        owner.kill()
    wait_until(lambda: not any(runs(process) for process in processes))


Owned = tuple[StackRecord, list[psutil.Process], psutil.Process]


def test_what_a_killed_owner_and_its_killed_supervisors_left_is_reaped(owner_record: Owned) -> None:
    record, processes, owner = owner_record
    supervisors = [psutil.Process(replica.leader.pid) for replica in record.replicas]
    for supervisor in supervisors:
        supervisor.suspend()  # so that none of them clears away when the owner goes
    owner.kill()
    owner.wait(60)
    for supervisor in supervisors:
        supervisor.kill()
    # The kernel ends what a supervisor has started, but nobody ends the children of that.
    orphans = [process for process in processes if process.pid not in {s.pid for s in supervisors}]
    wait_until(lambda: len([process for process in orphans if runs(process)]) == len(ROLES))
    assert reap() == ["fake"]
    assert not any(runs(process) for process in processes)
    assert not records()
    assert reap() == []


def test_a_stack_whose_owner_lives_is_not_reaped(owner_record: Owned) -> None:
    _, processes, _ = owner_record
    assert reap() == []
    assert all(runs(process) for process in processes)
    assert records()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_owner_ends_the_whole_stack(number: int, owner_record: Owned) -> None:
    _, processes, owner = owner_record
    owner.send_signal(number)
    owner.wait(60)
    assert not any(runs(process) for process in processes)
    assert not records()
