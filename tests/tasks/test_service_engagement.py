"""Arms that differ in what nobody asked for are BROKEN, whoever made the difference."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from fake_stack import wait_until

from serving.checkpoint import Checkpoint
from serving.engine_env import WITHOUT_GPU
from serving.errors import Broken
from serving.launch import Part, Server
from serving.stack import RoleSpec, StackSpec
from serving.witness import Witness
from tasks.records import Arm, RoleEdit
from tasks.service_arms import Arms
from tasks.service_engagement import Proof, prove

STACK = StackSpec(name="s", model="m", roles={"server": RoleSpec(port=31400)}, ready_timeout_s=1)
AS_WE_ARE = {"OMP_NUM_THREADS": "2", "SECRET": "hidden"}


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.engagement.known_arguments", dict)


@contextmanager
def server(arm: Arm, variables: Mapping[str, str], model: str, folder: Path) -> Iterator[Server]:
    process = subprocess.Popen(["/bin/sleep", "600"], env=dict(variables))
    log, nothing = folder / "x.log", cast(Any, None)
    try:
        wait_until(lambda: bool(psutil.Process(process.pid).environ()))  # the exec has ended
        part = Part(arm, "server", "", process.pid, log, nothing)
        witness = Witness(folder / arm / "reports", ())
        yield Server(arm, "", process.pid, log, (), Checkpoint(folder, model), 1.0, nothing, witness, (part,))
    finally:
        process.kill()
        process.wait()


def proved(
    folder: Path, edit: RoleEdit, theirs: Mapping[str, str], model: str = "a" * 64, arguments: Mapping[str, str] = {}
) -> Proof:
    edited = STACK.roles["server"].model_copy(
        update={"environment": dict(edit.environment), "arguments": dict(edit.arguments)}
    )
    candidate = STACK.model_copy(update={"roles": {"server": edited}})
    arms = Arms({"server": edit}, STACK, candidate, cast(Any, None))
    with (
        server(Arm.INCUMBENT, AS_WE_ARE, "a" * 64, folder) as ours,
        server(Arm.CANDIDATE, theirs, model, folder) as other,
    ):
        servers = {str(Arm.INCUMBENT): ours, str(Arm.CANDIDATE): other}
        return prove(
            arms,
            servers,
            {Arm.INCUMBENT: {"server": {}}, Arm.CANDIDATE: {"server": dict(arguments)}},
            folder / "arms.json",
        )


THREADS = RoleEdit(environment={"OMP_NUM_THREADS": "4"})


def test_the_variable_of_the_edit_is_proved_in_both_processes(tmp_path: Path) -> None:
    proof = proved(tmp_path, THREADS, {**AS_WE_ARE, "OMP_NUM_THREADS": "4"})
    assert proof.fault is None
    assert [(p.arm, p.seen) for p in proof.engagement] == [(Arm.INCUMBENT, "2"), (Arm.CANDIDATE, "4")]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"MALLOC_ARENA_MAX": "1"}, "`server.environment.MALLOC_ARENA_MAX`: absent and 1"),
        ({"SECRET": "other-hidden"}, "`server.environment.SECRET`: not shown and not shown"),
    ],
)
def test_another_variable_that_differs_is_broken_and_no_secret_is_told(
    changes: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(Broken, match="the arms differ in more than the edit") as broken:
        proved(tmp_path, THREADS, {**AS_WE_ARE, "OMP_NUM_THREADS": "4", **changes})
    assert said in broken.value.message
    assert "hidden" not in str(broken.value) + (tmp_path / "arms.json").read_text()


def test_files_of_the_model_that_changed_between_the_two_starts_are_broken(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="`model files`: aaaaaaaaaaaa and bbbbbbbbbbbb"):
        proved(tmp_path, THREADS, {**AS_WE_ARE, "OMP_NUM_THREADS": "4"}, "b" * 64)


def test_variables_that_the_launcher_sets_for_a_device_follow_from_an_edit_of_the_device(tmp_path: Path) -> None:
    for_cpu = {**AS_WE_ARE, **WITHOUT_GPU}
    assert proved(tmp_path, RoleEdit(arguments={"device": "cpu"}), for_cpu, arguments={"device": "cpu"}).fault is None
    with pytest.raises(Broken, match="TORCHDYNAMO_DISABLE"):
        proved(tmp_path, THREADS, {**for_cpu, "OMP_NUM_THREADS": "4"})
