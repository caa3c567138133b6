"""A candidate that runs on CPU, held in a sandbox as one thread: the parent owns its memory and reads its clock.

Inputs are written and results read here, in memory that both sides map; the process is asked for one call at a time, so
it never holds an input that it is not working on. Its CPU time is read from outside, by the clock of its process id.
"""

import json
import mmap
import os
import secrets
import select
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np

from serving.scratch import scratch
from tasks.ending import Limits, ending_of, limit_in
from tasks.native_start import shared_memory, single_process, start_process
from tasks.records import Record, digest
from tasks.sandbox import sandbox_mode
from tasks.twins import Array

ALIGNMENT = 64
READY_S, TAIL_BYTES = 120.0, 4096
# How arrays lie in the shared memory; bfloat16, which numpy lacks, as its bits.
STORED = {"float32": np.float32, "bfloat16": np.uint16, "int32": np.int32, "int8": np.int8}


class NativeFault(Exception):
    """What a candidate's process did wrong, in one line."""


class NativeSource(Record):
    """A source, the library compiled from its C++ if it has any, and keyword arguments for its `run`."""

    source: str
    library: bytes | None = None
    launch: dict[str, Any] = {}

    @property
    def digests(self) -> list[str]:
        return [digest(x) for x in (self.source, self.library) if x is not None]


class Native:
    """A loaded process. `calls[i][name]` is a tensor of call `i`, as both sides see it. Raises NativeFault, Broken."""

    def __init__(self, channel: socket.socket, calls: list[dict[str, Array]], loaded: list[str], pid: int) -> None:
        self.calls, self.loaded = calls, loaded
        self._channel = channel
        self._waiting = select.poll()
        self._waiting.register(channel, select.POLLIN)
        self._clock = (~pid << 3) | 2  # CPUCLOCK_SCHED of a process, as in clock_getcpuclockid(3)

    def call(self, index: int) -> None:
        """One call of `run`; returns when the process says that it has returned."""
        try:
            if self._waiting.poll(0) and self._channel.recv(TAIL_BYTES, socket.MSG_PEEK):
                raise NativeFault("answered before it was asked")
            self._channel.send(str(index).encode())
        except ConnectionError:
            raise NativeFault("") from None
        answer = self._receive()
        if answer != b"done":
            raise NativeFault(_said(answer))

    def cpu_ns(self) -> int:
        """CPU time of the process since its start, user and system, of every thread that it ever had."""
        return time.clock_gettime_ns(self._clock)

    def _receive(self) -> bytes:
        try:
            return self._channel.recv(TAIL_BYTES)
        except TimeoutError:
            raise NativeFault(f"did not return within {self._channel.gettimeout():g} s wall time") from None
        except ConnectionError:
            return b""


def layout(calls: Sequence[list[dict[str, Any]]]) -> tuple[list[list[dict[str, Any]]], int]:
    """The arguments of every call with an `offset` for each tensor, and the bytes that all take."""
    placed, end = [], 0
    for arguments in calls:
        found = []
        for x in arguments:
            if "shape" in x:
                x = {**x, "offset": end}
                end += -(-prod(x["shape"]) * np.dtype(STORED[x["dtype"]]).itemsize // ALIGNMENT) * ALIGNMENT
            found.append(x)
        placed.append(found)
    return placed, max(end, ALIGNMENT)


@contextmanager
def native(source: NativeSource, calls: Sequence[list[dict[str, Any]]], limits: Limits) -> Iterator[Native]:
    """The source, loaded, with the memory for `calls` (as `Problem.arguments_of` gives them), until the block ends.

    Raises NativeFault for what the candidate does wrong, Broken if the sandbox does not hold.
    """
    sandbox_mode()
    placed, size = layout(calls)
    with scratch() as folder, TemporaryFile() as log:
        memory = shared_memory(size)
        shared = mmap.mmap(memory, size)  # goes with the last view of it
        (folder / "candidate.py").write_text(source.source)
        if source.library is not None:
            (folder / "candidate.cpp.so").write_bytes(source.library)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(READY_S)
        try:
            process = start_process(folder, theirs, memory, log, limits)
        finally:
            theirs.close()
            os.close(memory)
        started = time.monotonic()
        try:
            yield _load(process, ours, placed, shared, source, limits)
        except NativeFault as fault:
            raise _why(process, fault, log, time.monotonic() - started, limits) from None
        finally:
            ours.close()
            process.kill()
            process.wait()


def _load(
    process: "subprocess.Popen[bytes]",
    channel: socket.socket,
    placed: list[list[dict[str, Any]]],
    shared: mmap.mmap,
    source: NativeSource,
    limits: Limits,
) -> Native:
    nonce = secrets.token_hex(16)
    request = {"entry": "run", "launch": source.launch, "nonce": nonce, "calls": [{"arguments": x} for x in placed]}
    try:
        channel.send(json.dumps(request).encode())
        loaded = json.loads(channel.recv(TAIL_BYTES) or "{}")
    except (OSError, ValueError):
        loaded = {}
    if loaded.get("nonce") != nonce:
        raise NativeFault("")
    views = [{x["name"]: _view(shared, x) for x in arguments if "shape" in x} for arguments in placed]
    found = Native(channel, views, loaded["loaded"], single_process(process.pid))
    channel.send(b"load")
    answer = found._receive()
    if answer != b"ready":
        raise NativeFault(_said(answer))
    channel.settimeout(limits.wall_s)
    return found


def _view(shared: mmap.mmap, x: dict[str, Any]) -> Array:
    found = np.frombuffer(shared, STORED[x["dtype"]], prod(x["shape"]), x["offset"])
    return found.reshape(x["shape"])


def _said(answer: bytes) -> str:
    """Empty if the process ended without a word."""
    return answer.removeprefix(b"fault ").decode(errors="replace") if answer.startswith(b"fault ") else ""


def _why(
    process: "subprocess.Popen[bytes]", fault: NativeFault, log: IO[bytes], wall_s: float, limits: Limits
) -> NativeFault:
    """The fault, or where the process said nothing, how it ended. Raises Broken if that was not its own doing."""
    if str(fault):
        return NativeFault(limit_in(str(fault), limits) or str(fault))
    try:
        returncode = process.wait(5)
    except subprocess.TimeoutExpired:
        return NativeFault("answered something else than that it is done")
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - TAIL_BYTES))
    text = log.read().decode(errors="replace")
    reason = ending_of(returncode, None, 0.0, text, wall_s, limits).reason or "the process ended before it answered"
    last = (text.strip().splitlines() or [""])[-1].strip()[:300]
    return NativeFault(reason if not last or last in reason else f"{reason}: {last}")
