"""What a process was started with is read from outside: its command line where it does not tell it, its variables."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from fake_stack import wait_until

from serving.engagement import (
    ABSENT,
    NOT_SHOWN,
    OWN_VARIABLES,
    Difference,
    differences,
    in_force,
    options_of,
    variable_differences,
)
from serving.errors import Broken
from serving.launch import Part, Server
from serving.witness import Witness


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.engagement.known_arguments", dict)


def test_a_command_line_is_read_into_options() -> None:
    words = [
        "python",
        "-P",
        "-m",
        "x",
        "--policy=round_robin",
        "--pd-disaggregation",
        "--prefill",
        "http://a:1",
        "31997",
    ]
    read = options_of(words)
    assert read == {"policy": "round_robin", "pd_disaggregation": True, "prefill": "http://a:1 31997"}
    assert in_force(read, "policy") == "round_robin"
    assert in_force(read, "max-concurrent-requests") == ABSENT


def test_arms_side_by_side_differ_in_where_their_roles_are_and_that_is_no_difference() -> None:
    ours, theirs = ({"policy": policy, "prefill": url} for policy, url in (("a", "http://x:1"), ("b", "http://x:6")))
    assert list(differences(ours, theirs)) == ["policy"]


@pytest.fixture
def server_of(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """A server of one name whose processes, all of role `decode`, do nothing and have the given variables."""
    with ExitStack() as running:

        def make(name: str, *variables: dict[str, str]) -> Server:
            parts = []
            for own in variables:
                sleeper = subprocess.Popen(["/bin/sleep", "600"], env=own)
                running.callback(sleeper.wait)
                running.callback(sleeper.kill)
                wait_until(lambda pid=sleeper.pid: bool(psutil.Process(pid).environ()))  # the exec has ended
                parts.append(Part(name, "decode", "", sleeper.pid, Path("x.log"), cast(Any, None)))
            witness = Witness(tmp_path / name / "reports", ())
            return Server(name, "", 1, Path("x.log"), (), cast(Any, None), 1.0, cast(Any, None), witness, tuple(parts))

        yield make


def test_processes_that_differ_in_nothing_but_what_is_an_arms_own_differ_in_no_variable(
    server_of: Callable[..., Server], tmp_path: Path
) -> None:
    def own(arm: str, *path: str) -> dict[str, str]:
        return {**dict.fromkeys(OWN_VARIABLES, arm), "PYTHONPATH": ":".join(["watch", *path, "cpu"]), "LANG": "C"}

    ours = server_of("incumbent", own("incumbent"))
    theirs = server_of("candidate", own("candidate", str(tmp_path / "candidate" / "overlay")))
    assert variable_differences(ours, theirs, "decode", frozenset()) == {}
    elsewhere = server_of("candidate", own("candidate", "/somewhere/overlay"))
    assert list(variable_differences(ours, elsewhere, "decode", frozenset())) == ["PYTHONPATH"]


def test_a_variable_that_nobody_asked_for_is_named_and_only_one_that_a_stack_may_state_is_shown(
    server_of: Callable[..., Server],
) -> None:
    ours = server_of("incumbent", {"OMP_NUM_THREADS": "2", "LANG": "C", "KEY": "hidden-1", "GLOO_X": "1"})
    theirs = server_of("candidate", {"OMP_NUM_THREADS": "4", "LANG": "C", "KEY": "hidden-2"})
    found = variable_differences(ours, theirs, "decode", frozenset({"GLOO_X"}))
    assert found == {
        "KEY": Difference(NOT_SHOWN, NOT_SHOWN),
        "OMP_NUM_THREADS": Difference("2", "4"),
    }


def test_replicas_count_together_and_one_that_is_alone_in_a_value_is_a_difference(
    server_of: Callable[..., Server],
) -> None:
    two, one = {"OMP_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "1"}
    assert variable_differences(server_of("a", two, two), server_of("b", two), "decode", frozenset()) == {}
    found = variable_differences(server_of("c", two, one), server_of("d", two), "decode", frozenset())
    assert found == {"OMP_NUM_THREADS": Difference("1 or 2", "2")}


def test_a_process_that_is_gone_is_broken_and_not_one_without_variables(server_of: Callable[..., Server]) -> None:
    ours = server_of("incumbent", {"LANG": "C"})
    gone = replace(ours, parts=(replace(ours.parts[0], pid=2**22 + 1),))
    with pytest.raises(Broken, match="cannot read the environment of `incumbent`"):
        variable_differences(ours, gone, "decode", frozenset())
