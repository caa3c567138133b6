"""Nothing that was started stays, however it ends."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fake_stack import wait_until

from serving.descendants import members, runs
from serving.endings import why_it_ended
from serving.errors import Broken
from serving.ports import hold_port, listeners, port_is_free
from serving.process import EngineProcess, start, stop
from serving.readiness import wait_until_ready
from serving.stack import RoleSpec, StackSpec
from serving.supervisor import LOG_BYTES

# A server with a child and a grandchild; `{stubborn}` decides whether it heeds SIGTERM.
FAMILY = """
import signal, socket, subprocess, sys, time
if {stubborn}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", {port})); s.listen()
sleep = "import time; time.sleep(600)"
inner = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {{sleep!r}}]); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", inner])
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def family(port: int, run_dir: Path, stubborn: bool = False) -> EngineProcess:
    code = FAMILY.format(port=port, stubborn=stubborn)
    engine = start("server", [sys.executable, "-c", code], {"PATH": os.environ["PATH"]}, port, run_dir)
    deadline = time.monotonic() + 60
    while len(engine.alive()) < 4 or "up" not in engine.log_file.read_text():
        assert time.monotonic() < deadline, engine.log_file.read_text()
        time.sleep(0.02)
    return engine


@pytest.mark.parametrize("stubborn", [False, True])
def test_stopping_ends_the_whole_family_and_frees_the_port(
    stubborn: bool, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.process.DRAIN_S", 0.5)
    engine = family(port, tmp_path, stubborn)
    everyone = engine.alive()
    assert not port_is_free(port)
    stop([engine])
    assert not any(runs(process) for process in everyone)
    assert port_is_free(port)
    assert not any(runs(process) for process in members(engine.leader.pid))


def test_children_that_outlive_a_killed_leader_are_found_and_ended(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.process.DRAIN_S", 0.1)
    engine = family(port, tmp_path)
    everyone = engine.alive()
    os.kill(engine.leader.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while engine.exit_status() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert engine.exit_status() == -signal.SIGKILL
    stop([engine])
    assert not any(runs(process) for process in everyone)


def test_a_taken_port_is_broken_and_named_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Broken, match=str(port)):
            start("server", [sys.executable, "-c", ""], {}, port, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_second_run_on_a_port_is_broken_before_the_first_has_bound_it(port: int, tmp_path: Path) -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
    first = start("server", sleeps, {}, port, tmp_path / "first")
    try:
        assert port_is_free(port)
        with pytest.raises(Broken, match=f"{port}.*another run of infra-agent .process {os.getpid()}") as broken:
            start("server", sleeps, {}, port, tmp_path / "second")
        assert "wait" in broken.value.hint
        assert not (tmp_path / "second").exists()
    finally:
        stop([first])
    hold_port(port, "server").close()


def test_the_hold_on_a_port_vanishes_with_a_process_that_is_killed(port: int) -> None:
    code = f"from serving.ports import hold_port; x = hold_port({port}, 's'); print(1, flush=True); input()"
    root, pipe = Path(__file__).parents[2], subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, cwd=root) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(Broken, match=str(holder.pid)):
            hold_port(port, "server")
        holder.kill()
    hold_port(port, "server").close()


def test_an_engine_listens_only_when_a_process_of_its_own_does(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.process.DRAIN_S", 0.1)
    engine = family(port, tmp_path)
    assert engine.listener() in {process.pid for process in engine.alive()}
    stop([engine])
    assert listeners(port) == set()
    assert engine.listener() is None


def test_a_stranger_that_answers_on_the_port_of_an_engine_is_broken_and_named(port: int, tmp_path: Path) -> None:
    engine = start("server", [sys.executable, "-c", "import time; time.sleep(600)"], {}, port, tmp_path)
    try:
        with socket.socket() as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stranger.bind(("127.0.0.1", port))
            stranger.listen()
            spec = StackSpec(name="s", model="m", roles={"server": RoleSpec(port=max(port, 1024))}, ready_timeout_s=60)
            for proof in (engine.listener, lambda: wait_until_ready({"server": spec}, {"server": engine})):
                with pytest.raises(Broken, match=f"answered by process {os.getpid()}"):
                    proof()
    finally:
        stop([engine])


HOLDS_SHARED_MEMORY = """
import mmap, os, time
with open({file!r}, "wb+") as f:
    f.truncate(4096)
    kept = mmap.mmap(f.fileno(), 4096)
    print("up", os.getpid(), flush=True)
    time.sleep(600)
"""


LEAVES_A_FILE = "import tempfile; tempfile.NamedTemporaryFile(delete=False)\n"


def temporary_files(folder: Path) -> list[Path]:
    return list(folder.glob("infra-agent-*/tmp*"))


@pytest.fixture
def shared_file() -> Iterator[Path]:
    file = Path("/dev/shm") / f"infra-agent-test-{os.getpid()}"
    yield file
    file.unlink(missing_ok=True)


def wait_for(said: str, log_file: Path) -> str:
    deadline = time.monotonic() + 60
    while said not in (log_file.read_text() if log_file.exists() else ""):
        assert time.monotonic() < deadline, log_file
        time.sleep(0.02)
    return log_file.read_text()


def test_an_engine_and_its_shared_memory_go_with_an_owner_that_is_killed(
    port: int, tmp_path: Path, shared_file: Path
) -> None:
    owner_code = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        from serving.process import start
        code = {(LEAVES_A_FILE + HOLDS_SHARED_MEMORY.format(file=str(shared_file)))!r}
        variables = {{"TMPDIR": {str(tmp_path)!r}}}
        engine = start("server", [sys.executable, "-c", code], variables, {port}, Path({str(tmp_path)!r}))
        print(engine.leader.pid, flush=True)
        time.sleep(600)
    """)
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", owner_code], stdout=subprocess.PIPE, text=True, cwd=root) as owner:
        assert owner.stdout is not None
        leader = psutil.Process(int(owner.stdout.readline()))
        server = psutil.Process(int(wait_for("up", tmp_path / "server.log").split()[1]))
        assert shared_file.exists()
        assert temporary_files(tmp_path)
        owner.kill()
    psutil.wait_procs([leader, server], timeout=60)
    assert not any(runs(process) for process in (leader, server))
    assert not shared_file.exists()
    assert not temporary_files(tmp_path)


def test_an_engine_and_its_temporary_files_go_with_a_supervisor_that_is_killed(port: int, tmp_path: Path) -> None:
    code = LEAVES_A_FILE + "import time; print('up', flush=True); time.sleep(600)"
    engine = start("server", [sys.executable, "-c", code], {"TMPDIR": str(tmp_path)}, port, tmp_path)
    wait_for("up", engine.log_file)
    assert temporary_files(tmp_path)
    deadline = time.monotonic() + 60
    engine.leader.kill()
    while engine.alive():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    stop([engine])
    assert not temporary_files(tmp_path)


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)]
)
def test_the_leader_ends_the_way_its_engine_ends(code: str, status: int, port: int, tmp_path: Path) -> None:
    engine = start("server", [sys.executable, "-c", code], {}, port, tmp_path)
    deadline = time.monotonic() + 60
    while engine.exit_status() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert engine.exit_status() == status
    stop([engine])


@pytest.mark.parametrize("late", [False, True])
def test_shared_memory_that_a_server_leaves_is_removed(
    late: bool, port: int, tmp_path: Path, shared_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`late`: made while the server is already being stopped, and never seen by a look before that."""
    monkeypatch.setattr("serving.process.DRAIN_S", 2.0)
    held = HOLDS_SHARED_MEMORY.format(file=str(shared_file))
    code = f"import signal\nsignal.signal(15, lambda *_: exec({held!r}))\nprint('up', flush=True)\nsignal.pause()"
    engine = start("server", [sys.executable, "-c", code if late else held], {}, port, tmp_path)
    wait_for("up", engine.log_file)
    stop([engine])
    assert not shared_file.exists()


def test_a_file_in_shared_memory_that_was_there_before_stays(port: int, tmp_path: Path, shared_file: Path) -> None:
    shared_file.write_bytes(b"somebody else's")
    engine = start(
        "server", [sys.executable, "-c", HOLDS_SHARED_MEMORY.format(file=str(shared_file))], {}, port, tmp_path
    )
    wait_for("up", engine.log_file)
    stop([engine])
    assert shared_file.exists()


def test_a_semaphore_that_a_server_leaves_is_removed(port: int, tmp_path: Path) -> None:
    code = """
import multiprocessing, os, signal, time
kept = multiprocessing.get_context("spawn").Lock()
print("up", kept._semlock.name, flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""
    engine = start("server", [sys.executable, "-c", code], {"PATH": os.environ["PATH"]}, port, tmp_path)
    name = wait_for("\n", engine.log_file).split()[1].removeprefix("/")
    file = Path("/dev/shm") / f"sem.{name}"
    assert file.exists()
    engine.observe()
    assert file in engine.shared
    engine.kill()
    stop([engine])
    assert not file.exists()


STRAY = """
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", "import os, sys, time; print(os.getpid(), flush=True); time.sleep(600)"],
                 start_new_session=True)
while not os.path.getsize(sys.argv[1]):
    pass
"""


def test_an_engine_that_ends_takes_along_what_it_left_in_a_session_of_its_own(port: int, tmp_path: Path) -> None:
    log_file = tmp_path / "server.log"
    engine = start("server", [sys.executable, "-c", STRAY, str(log_file)], {"PATH": os.environ["PATH"]}, port, tmp_path)
    deadline = time.monotonic() + 60
    while engine.exit_status() is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    stray = int(log_file.read_text())
    stop([engine])
    assert not any(process.pid == stray and runs(process) for process in psutil.process_iter())


def test_an_engine_that_writes_without_end_is_ended_and_its_log_says_why(port: int, tmp_path: Path) -> None:
    """The log is one of holes: long, and takes no space."""
    code = f"import os, time; os.truncate(1, {LOG_BYTES + 1}); os.lseek(1, 0, os.SEEK_END); time.sleep(600)"
    engine = start("server", [sys.executable, "-c", code], {"PATH": os.environ["PATH"]}, port, tmp_path)
    wait_until(lambda: engine.exit_status() is not None)
    ended = why_it_ended(engine)
    stop([engine])
    assert ended.refused
    assert "status 1" in ended.message
    assert "its log is longer than 1 GB" in ended.message
    assert not any(runs(process) for process in engine.seen)
