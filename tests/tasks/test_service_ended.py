"""The service rung when a server ends, is killed, or is shut out by its router: who is named, and whose fault it is."""

import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_stack import stack_file
from service_setup import Setup, known_noise, values

from serving.endings import EngineEnded
from serving.errors import Broken
from serving.launch import Server
from tasks.records import (
    Arm,
    RoleEdit,
    StackEdit,
)
from tasks.service import measure_service


def ended(server: str, refused: bool) -> Callable[..., object]:
    def raising(*_args: object) -> object:
        raise EngineEnded(f"`{server}` ended", "see its log", server=server, refused=refused)

    return raising


def test_a_candidate_that_refuses_to_start_is_its_own_fault(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.service.running_together", ended("candidate", refused=True))
    assert measure_service(setup.hypothesis()).candidate_fault == "`candidate` ended"


@pytest.mark.parametrize(("server", "refused"), [("incumbent", True), ("candidate", False)])
def test_an_incumbent_that_ends_or_a_candidate_ended_from_outside_is_broken(
    server: str, refused: bool, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.service.running_together", ended(server, refused))
    with pytest.raises(Broken):
        measure_service(setup.hypothesis())


def shutting_out(arm: Arm) -> Callable[[Server], tuple[str, ...]]:
    return lambda server: ("prefill", "decode") if server.name == arm else ()


@pytest.mark.parametrize("arm", list(Arm))
def test_workers_that_a_router_shuts_out_before_the_traffic_are_named_and_nothing_is_judged(
    arm: Arm, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.breakers.shut_out_of", shutting_out(arm))
    with pytest.raises(Broken, match=f"{arm}: the router sends nothing to `prefill` and `decode`"):
        measure_service(setup.hypothesis(), recall=known_noise)


def test_a_status_that_only_says_no_becomes_the_names_of_the_workers_that_are_shut_out(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.engines[Arm.CANDIDATE].key = "k"
    with pytest.raises(Broken, match="401"):
        measure_service(setup.hypothesis())
    monkeypatch.setattr("serving.breakers.shut_out_of", shutting_out(Arm.CANDIDATE))
    with pytest.raises(Broken, match="candidate: the router sends nothing to `prefill` and `decode`"):
        measure_service(setup.hypothesis())


def test_workers_that_are_shut_out_under_traffic_are_the_fault_of_the_candidate_alone(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.service.shut_out_of", shutting_out(Arm.CANDIDATE))
    evidence = measure_service(setup.hypothesis(), recall=known_noise)
    assert "under traffic the router sends nothing to `prefill` and `decode`" in (evidence.candidate_fault or "")
    assert len(values(evidence, "ttft_mean_ms", Arm.CANDIDATE)) == 1
    checked: list[Server] = []
    monkeypatch.setattr("tasks.service.check_breakers", checked.extend)
    monkeypatch.setattr("tasks.service.shut_out_of", shutting_out(Arm.INCUMBENT))
    measure_service(setup.hypothesis(), recall=known_noise)
    assert {server.name for server in checked} == set(Arm)


@pytest.mark.parametrize(("arm", "role"), [(arm, role) for arm in Arm for role in ("decode", "router")])
def test_a_role_that_is_killed_is_named_with_its_arm_before_all_is_torn_down_and_makes_the_run_broken(
    arm: Arm, role: str, setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("tasks.service.check_weights", lambda *_, **__: None)
    monkeypatch.setattr("tasks.service.check_stack", lambda _: [])
    monkeypatch.setattr("serving.arguments.router_arguments", lambda: {})
    setup.stack = stack_file(tmp_path)
    edit = StackEdit(roles={"decode": RoleEdit(environment={"OMP_NUM_THREADS": "2"})})
    started: dict[str, Server] = {}
    monkeypatch.setattr("tasks.service.check_breakers", lambda servers: started.update({s.name: s for s in servers}))

    def kill(*_: object) -> bool:
        (killed,) = (part for part in started[arm].parts if part.role == role)
        os.kill(killed.pid, signal.SIGKILL)
        return False

    with pytest.raises(EngineEnded, match=f"{arm}: `{role}` was ended from outside, by SIGKILL") as ended:
        measure_service(setup.hypothesis().model_copy(update={"change": edit}), enough=kill, recall=known_noise)
    assert not any(part.process.alive() for server in started.values() for part in server.parts)
    said = [record.message for record in caplog.records]
    assert said.index(ended.value.message) < said.index("stopped: router")
