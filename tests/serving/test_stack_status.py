"""What is said of a stack that is not wholly up: the roles at fault, and what to do about it."""

from pathlib import Path

import pytest

from serving.roles import Role
from serving.stack_status import Health, ReplicaStatus, StackStatus, fault_of


def replica(name: Role, health: Health) -> ReplicaStatus:
    return ReplicaStatus(
        name=name, role=name, health=health, pid=None, processes=0, ports={}, memory_mb=None, last_error=None,
        log_file=str(Path("logs") / name),
    )  # fmt: skip


def status(**changes: object) -> StackStatus:
    replicas = (replica("prefill", "healthy"), replica("decode", "ended"), replica("router", "no answer"))
    made = StackStatus(
        name="x",
        state="in part",
        detached=True,
        owner_pid=None,
        url="http://127.0.0.1:1",
        shut_out=(),
        replicas=replicas,
    )
    return made.model_copy(update=changes)


def test_nothing_is_said_of_a_stack_that_is_wholly_up() -> None:
    assert fault_of(status(state="up")) is None


def test_each_role_that_is_not_healthy_is_named_with_what_it_is_and_no_other() -> None:
    fault = fault_of(status())
    assert fault is not None
    assert fault.message == "stack `x` is not wholly up: `decode` ended, `router` does not answer"
    assert fault.hint == "infra-agent stack down x"


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"state": "ended"}, "infra-agent stack down x"),
        ({"state": "starting"}, "wait until"),
        ({"state": "elsewhere"}, "look at it and end it there"),
        ({"detached": False, "owner_pid": 7}, "infra-agent stack reap"),
    ],
)
def test_the_hint_fits_who_can_end_it(changes: dict[str, object], hint: str) -> None:
    fault = fault_of(status(**changes))
    assert fault is not None
    assert hint in fault.hint
