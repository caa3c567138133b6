"""One engine process with all its descendants: started in a session of its own, and ended without leaving anything.

Processes are known by pid and creation time, never by name. The leader is not reaped until `stop` has seen the last of
them go, so that neither its pid nor its session id can be given to somebody else.
"""

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from serving.descendants import end_at_once, members, pending, runs, shared_memory_files, shared_memory_of
from serving.errors import Broken
from serving.ports import hold_port, listeners, port_is_free
from serving.recorded_process import RecordedProcess
from serving.supervisor import RELEASED
from serving.temporary import new_folder, remove

log = logging.getLogger(__name__)

# SGLang looks for the end of its last request every 5 seconds.
DRAIN_S = 15.0
KILL_S = 10.0
POLL_S = 0.05
LOOKS = 4


@dataclass
class EngineProcess:
    """`leader` is the supervisor of the engine, `locks` hold its ports, `there_before` are files in shared memory.

    It is asked things on the first of `ports` of `host`, and `temporary` goes with it. `seen`, `shared`: every descendant,
    and every file in shared memory that one of them holds, observed so far.
    """

    name: str
    leader: subprocess.Popen[bytes]
    ports: tuple[int, ...]
    log_file: Path
    locks: tuple[socket.socket, ...]
    there_before: frozenset[Path]
    temporary: Path
    host: str = "127.0.0.1"
    seen: set[psutil.Process] = field(default_factory=set)
    shared: set[Path] = field(default_factory=set)

    @property
    def port(self) -> int:
        return self.ports[0]

    def exit_status(self) -> int | None:
        """Status if the leader has ended (negative: by that signal), without reaping it."""
        if self.leader.returncode is not None:
            return self.leader.returncode
        ended = os.waitid(os.P_PID, self.leader.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def alive(self) -> list[psutil.Process]:
        """The processes of this engine that still run, zombies not counted."""
        self.seen |= members(self.leader.pid)
        return [process for process in self.seen if runs(process)]

    def listener(self) -> int | None:
        """The process of this engine that listens on its port, None before one does.

        Raises Broken, naming the process, when somebody else listens there.
        """
        for _ in range(LOOKS):
            self.alive()
            found = listeners(self.port, self.host)
            ours = {process.pid for process in self.seen | set(self.alive())}
            strangers = found - ours
            if not strangers:
                return min((pid for pid in found if pid is not None), default=None)
            time.sleep(POLL_S)  # a process that is being born or is dying looks like a stranger, but not for long
        named = ", ".join("of another user" if pid is None else str(pid) for pid in strangers)
        raise Broken(
            f"port `{self.port}` is answered by process {named}, which is not of `{self.name}`",
            f"see who has it with `ss -ltnp 'sport = :{self.port}'`, or give the stack another port",
        )

    def observe(self) -> None:
        """Takes note of what would have to be cleared away if the engine ended now."""
        self.shared |= {file for process in self.alive() for file in shared_memory_of(process)} - self.there_before

    def ask(self) -> None:
        """Asks the engine to end, through its leader."""
        if self.exit_status() is None:
            self.leader.terminate()

    def kill(self) -> None:
        """Ends everything but the leader, which is the last to go."""
        found = end_at_once(lambda: [process for process in self.alive() if process.pid != self.leader.pid])
        self.shared |= found - self.there_before
        if self.exit_status() is None:
            self.leader.kill()

    def release(self) -> None:
        """From now on it outlives this process. Returns when its leader knows; raises Broken when that has ended."""
        self.leader.send_signal(RELEASED)
        while self.exit_status() is None and pending(self.leader.pid, RELEASED):
            time.sleep(POLL_S)
        if self.exit_status() is not None:
            raise Broken(f"`{self.name}` ended while it was being detached", f"see {self.log_file}")
        for lock in self.locks:
            lock.close()

    def let_go(self) -> None:
        """Reaps the leader if all of it has ended, and gives the ports away."""
        if not self.alive():
            self.leader.wait()
        for lock in self.locks:
            lock.close()


def start(
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    port: int,
    run_dir: Path,
    other_ports: Sequence[int] = (),
    host: str = "127.0.0.1",
) -> EngineProcess:
    """Starts `command` with `run_dir/name` as its folder and `run_dir/name.log` as its output.

    It dies with the thread that starts it, until it is released. Raises Broken when a port is taken, or held by another run.
    """
    ports = (port, *other_ports)
    folder, log_file = run_dir / name, run_dir / f"{name}.log"
    there_before = shared_memory_files()
    with ExitStack() as undo:
        locks = tuple(undo.enter_context(closing(hold_port(number, name, host))) for number in ports)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = new_folder(environment)
        undo.callback(remove, temporary)
        starter = [sys.executable, "-I", "-m", "serving.supervisor", str(os.getpid()), str(temporary)]
        with log_file.open("wb") as output:
            leader = subprocess.Popen(
                [*starter, *command],
                cwd=folder,
                env={**environment, "TMPDIR": str(temporary)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        undo.pop_all()
    return EngineProcess(name, leader, ports, log_file, locks, there_before, temporary, host)


def stop(engines: Sequence[EngineProcess | RecordedProcess], drain_s: float | None = None) -> None:
    """Ends all engines at once: the leaders are asked and may drain for `drain_s`, then everything left is killed.

    Returns when every process is gone, the ports are free and temporary files removed; raises Broken naming what stays.
    An interruption while draining goes on to kill at once, and is raised afterwards.
    """
    try:
        for engine in engines:
            engine.observe()
            engine.ask()
        _wait_until_gone(engines, DRAIN_S if drain_s is None else drain_s)
    finally:
        for engine in engines:
            engine.kill()
        _wait_until_gone(engines, KILL_S)
        left = _left(engines)
        if not left:
            # SGLang leaves its load table behind even after an orderly end.
            for file in {file for engine in engines for file in engine.shared}:
                file.unlink(missing_ok=True)
            for engine in engines:
                remove(engine.temporary)
        for engine in engines:
            engine.let_go()
    taken = [port for engine in engines for port in engine.ports if not port_is_free(port, engine.host)]
    if left or taken:
        raise Broken(
            f"engines did not end: processes {[process.pid for process in left]}, ports still taken {taken}",
            "end these processes by pid before the next run",
        )
    if engines:
        log.info("stopped: %s", ", ".join(engine.name for engine in engines))


def _left(engines: Sequence[EngineProcess | RecordedProcess]) -> list[psutil.Process]:
    return [process for engine in engines for process in engine.alive()]


def _wait_until_gone(engines: Sequence[EngineProcess | RecordedProcess], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while _left(engines) and time.monotonic() < deadline:
        for engine in engines:
            engine.observe()
        time.sleep(POLL_S)
