"""`stack up`, `status`, `down` and `reap` as a person types them, with a fake engine that starts in a second."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
import yaml
from fake_stack import ROLES, ROOT, stack_file, wait_until

from serving.arguments import known_arguments
from serving.descendants import runs
from serving.errors import Broken
from serving.home import home
from serving.identity import still_there
from serving.ports import port_is_free
from serving.stack_record import StackRecord, detached_file, read, records

CODE = "import sys; sys.argv[0] = 'infra-agent'; from flows.cli import main; main()"


def stack(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CODE, "stack", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, timeout=120, check=False)


def recorded() -> StackRecord:
    found = read(detached_file("fake"))
    assert found is not None
    return found


def everyone(record: StackRecord) -> list[psutil.Process]:
    return [process for replica in record.replicas for process in replica.process().alive()]


@pytest.fixture(scope="session")
def options(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The folder in which SGLang's options are kept, made once: each test has a home of its own, and asking takes seconds.

    None without an engine environment: then `up` says that nothing was checked.
    """
    made: Path | None = tmp_path_factory.mktemp("options")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFRA_AGENT_HOME", str(made))
        try:
            known_arguments()
        except Broken:
            made = None
    return made


@pytest.fixture(autouse=True)
def known(options: Path | None, own_home: Path) -> bool:
    """Whether SGLang's options are known."""
    if options is not None:
        shutil.copytree(options / "engine-arguments", home() / "engine-arguments")
    return options is not None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return stack_file(tmp_path)


def test_a_stack_that_serves_what_was_never_loaded_is_up_and_says_so(tmp_path: Path) -> None:
    file = stack_file(tmp_path, {"decode": {"SGLANG_FAKE_UNFILLED": "lm_head.weight"}})
    up = stack("up", file)
    assert up.returncode == 0, up.stderr
    assert "`fake` serves parameters that nothing was loaded into: `lm_head.weight`; answers may be wrong" in up.stderr
    assert stack("down", file).returncode == 0


def test_a_stack_is_up_after_the_command_is_seen_by_status_and_gone_after_down(file: Path, tmp_path: Path) -> None:
    up = stack("up", file)
    assert up.returncode == 0, up.stderr
    record = recorded()
    assert record.owner is None
    processes = everyone(record)
    assert len(processes) == 3 * len(ROLES)  # a supervisor, the engine and its child

    again = stack("up", file)
    assert again.returncode == 0, again.stderr
    assert "is up already" in again.stderr
    assert recorded() == record

    assert stack("reap").stdout == "nothing was left\n"
    assert all(runs(process) for process in processes)

    status = stack("status", "--json", tmp_path / "status.json")
    assert status.stdout.startswith("fake: up, detached, at http://127.0.0.1:")
    (told,) = json.loads((tmp_path / "status.json").read_text())
    assert told["shut_out"] == []
    assert [(one["name"], one["health"], one["processes"]) for one in told["replicas"]] == [
        (role, "healthy", 3) for role in ROLES
    ]
    assert all(
        set(map(str, replica.ports)) == set(one["ports"])
        for replica, one in zip(record.replicas, told["replicas"], strict=True)
    )

    down = stack("down", file)
    assert down.returncode == 0, down.stderr
    assert down.stdout == "stack `fake`: ended encode, prefill, decode, router\n"
    assert "stopped: router\n" in down.stderr
    assert not any(runs(process) for process in processes)
    assert all(port_is_free(port) for replica in record.replicas for port in replica.ports)
    assert not records()

    again = stack("down", file)
    assert again.returncode == 0
    assert again.stdout == "stack `fake` is not up: nothing to end\n"
    assert stack("status").stdout == f"no stack is up, by what is written in {home()}\n"


def test_a_role_that_ended_is_named_by_status_and_up_says_what_to_do(file: Path) -> None:
    assert stack("up", file).returncode == 0
    record = recorded()
    decode = next(replica for replica in record.replicas if replica.role == "decode")
    os.kill(decode.leader.pid, signal.SIGKILL)
    wait_until(lambda: still_there(decode.leader) is None)
    status = stack("status", "fake")
    assert status.returncode == 4
    assert "fake: in part" in status.stdout
    assert "decode      ended" in status.stdout
    assert "error: stack `fake` is not wholly up: `decode` ended" in status.stderr
    assert "hint: infra-agent stack down fake\n" in status.stderr
    up = stack("up", file)
    assert up.returncode == 4
    assert "`decode` ended" in up.stderr
    assert "stack down fake` first" in up.stderr
    assert stack("down", "fake").returncode == 0
    assert not any(runs(process) for process in everyone(record))


def test_workers_that_the_router_has_shut_out_are_named_by_status(tmp_path: Path) -> None:
    file = stack_file(tmp_path, {"router": {"SGLANG_FAKE_BREAKERS": "1"}})
    assert stack("up", file).returncode == 0
    said = stack("status", "fake", "--json", tmp_path / "status.json").stdout
    assert "fake: in part" in said
    assert "the router sends nothing to `prefill` and `decode`, whose requests failed" in said
    assert "hint: it asks them again after a minute; else `infra-agent stack down fake`, then `up`" in said
    (told,) = json.loads((tmp_path / "status.json").read_text())
    assert told["shut_out"] == ["prefill", "decode"]
    health = {one["name"]: one["health"] for one in told["replicas"]}
    assert health == {"encode": "healthy", "prefill": "shut out", "decode": "shut out", "router": "healthy"}
    assert stack("down", "fake").returncode == 0


def test_a_real_router_shuts_out_the_workers_of_failed_requests_and_status_reads_it(file: Path, known: bool) -> None:
    """Its prefill is gone, and the router has decode pay for it as well: breakers know requests, not causes."""
    if not known:
        pytest.skip("the router is in the engine environment; run: make engine")
    written = yaml.safe_load(file.read_text())
    del written["roles"]["router"]["engine"]
    file.write_text(yaml.safe_dump(written))
    up = stack("up", file)
    assert up.returncode == 0, up.stderr
    record = recorded()
    for process in next(one for one in record.replicas if one.role == "prefill").process().alive():
        process.kill()
    body = {"input_ids": [1], "sampling_params": {"max_new_tokens": 1}}
    asked = [httpx.post(f"{record.url}/generate", json=body, timeout=60).status_code for _ in range(3)]
    assert asked[-1] == 503
    said = stack("status", "fake").stdout
    assert "prefill     ended" in said
    assert "decode      shut out" in said
    assert "the router sends nothing to `prefill` and `decode`" in said
    assert stack("down", "fake").returncode == 0


def test_another_text_under_the_same_name_is_refused_while_the_first_is_up(file: Path) -> None:
    assert stack("up", file).returncode == 0
    file.write_text(file.read_text().replace("ready_timeout_s: 60", "ready_timeout_s: 61"))
    up = stack("up", file)
    assert up.returncode == 2
    assert "another text" in up.stderr
    assert stack("down", file).returncode == 0


def test_a_role_that_ends_while_it_starts_is_named_before_the_others_are_stopped(tmp_path: Path) -> None:
    up = stack("up", stack_file(tmp_path, {"decode": {"SGLANG_FAKE_ERROR": "planted"}}))
    assert up.returncode == 4
    said = up.stderr
    assert 0 <= said.find("`decode` ended with status 1; last error") < said.find("stopped: "), said
    assert not records()


def test_an_interrupted_up_leaves_nothing(tmp_path: Path) -> None:
    file = stack_file(tmp_path, {"decode": {"SGLANG_FAKE_DEAF": "1"}})
    with subprocess.Popen(
        [sys.executable, "-c", CODE, "stack", "up", str(file)], cwd=ROOT, stderr=subprocess.PIPE
    ) as up:
        wait_until(lambda: detached_file("fake").exists() and len(recorded().replicas) == 3)
        record = recorded()
        assert record.owner is not None
        assert record.owner.pid == up.pid
        refused = stack("down", file)
        assert refused.returncode == 2
        assert "another command is starting or ending" in refused.stderr
        up.terminate()
        up.wait(60)
    assert up.returncode == 4
    assert not everyone(record)
    assert not records()


def test_a_taken_port_is_named_and_nothing_starts(file: Path) -> None:
    port = next(line for line in file.read_text().splitlines() if "bootstrap_port" in line).split()[-1]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(port)))
        taken.listen()
        up = stack("up", file)
    assert up.returncode == 4
    assert f"port `{port}` on 127.0.0.1 is taken, so `prefill` cannot start" in up.stderr
    assert not records()


def test_a_stack_with_an_error_is_not_started_and_every_fault_names_its_field(file: Path, known: bool) -> None:
    if not known:
        pytest.skip("SGLang's options are not known here; run: make engine")
    written = yaml.safe_load(file.read_text())
    written["roles"]["decode"]["arguments"]["max-total-tokns"] = 64
    written["roles"]["router"]["speed"] = 9
    file.write_text(yaml.safe_dump(written))
    up = stack("up", file)
    assert up.returncode == 2
    assert "error: `roles.router.speed`: unknown key" in up.stderr
    assert "error: `roles.decode.arguments.max-total-tokns`: SGLang 0.5.23 has no such option" in up.stderr
    assert "did you mean `max-total-tokens`" in up.stderr
    assert "warning: `roles.prefill.arguments.max-total-tokens`" in up.stderr
    assert "2 errors, 2 warnings; nothing was started" in up.stderr
    assert not records()
    said = stack("validate", file).stdout
    assert all(line in said for line in up.stderr.splitlines() if line.startswith(("error: `roles", "warning:")))


def test_without_sglangs_options_a_stack_starts_and_it_is_said_that_it_was_not_checked(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFRA_AGENT_ENGINE", "/nowhere")
    up = stack("up", file)
    assert up.returncode == 0, up.stderr
    assert f"warning: {file} was not checked before the start: " in up.stderr
    assert stack("down", file).returncode == 0


def test_a_name_that_is_not_up_is_nothing_to_end_and_a_status_of_its_own() -> None:
    down = stack("down", "fake")
    assert (down.returncode, down.stdout) == (0, "stack `fake` is not up: nothing to end\n")
    status = stack("status", "fake")
    assert status.returncode == 4
    assert f"stack `fake` is not up, by what is written in {home()}" in status.stderr


@pytest.mark.parametrize("word", ["Fake", "no_name", "fake.yaml", "x" * 101, "x" * 3000, "."])
def test_a_word_that_is_neither_a_file_nor_the_name_of_a_stack_is_bad_input(word: str) -> None:
    done = stack("down", word)
    assert done.returncode == 2
    assert "hint:" in done.stderr


def test_a_file_that_cannot_be_written_is_said_before_a_stack_starts(file: Path, tmp_path: Path) -> None:
    done = stack("up", file, "--json", tmp_path / "nowhere" / "status.json")
    assert done.returncode == 2
    assert "status.json" in done.stderr
    assert not records()


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_a_file_that_is_not_there_is_bad_input(command: str, tmp_path: Path) -> None:
    done = stack(command, tmp_path / "nowhere.yaml")
    assert done.returncode == 2
    assert "no such file" in done.stderr
    assert "hint:" in done.stderr
    assert not (tmp_path / "nowhere").exists()
