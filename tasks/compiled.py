"""Compiles one kernel source in the sandbox, for every shape of its problem, and keeps the result by content.

What the candidate's `run` asked to launch (tasks/recorded.py) is compiled in a process where no line of the candidate
runs; what comes back is a launch description and cubins, checked here. A result in the cache is checked again.
"""

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from uuid import uuid4

from pydantic import Field, ValidationError

from serving.home import home
from tasks.problem import Problem
from tasks.recorded import Recording, record
from tasks.records import Digest, Environment, KernelCandidate, Record, Scalar, digest
from tasks.staging import Stage, UntrustedResult, fault_of, staged

_ELF = b"\x7fELF"
_MAX_CUBIN_BYTES = 16 << 20
# What decides about the machine code; the CPU that ran the compiler does not.
_KEY_FACTS = ("arch", "ptxas", "torch", "triton", "python")


class LaunchSite(Record):
    """A kernel launch without its machine code: the same whether it was compiled or interpreted."""

    kernel: str
    source: Digest
    grid: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=3, max_length=3)]
    constexprs: dict[str, Scalar | None]
    scalars: dict[str, Scalar | None]

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


class Argument(Record):
    """What the machine code takes, in order: a pointer into a buffer (of `run`, or scratch), or a scalar."""

    type: str
    buffer: str | None = None
    offset_bytes: Annotated[int, Field(ge=0)] = 0
    value: Scalar | None = None


class Launch(LaunchSite):
    """All that a trusted process needs to launch it again. `scratch_bytes` sizes buffers the candidate allocates.

    `specialised` is what the compiler assumed of each argument: its type, being 1, a multiple of 16.
    """

    specialised: dict[str, str]
    arguments: tuple[Argument, ...]
    scratch_bytes: dict[str, Annotated[int, Field(ge=0)]]
    cubin: Digest
    num_warps: Annotated[int, Field(ge=1, le=32)]
    num_stages: int
    num_ctas: Annotated[int, Field(ge=1)]
    shared_bytes: Annotated[int, Field(ge=0)]
    global_scratch_bytes: Annotated[int, Field(ge=0)]

    @property
    def warps(self) -> int:
        """All that run: a program is a cluster of `num_ctas` blocks."""
        return self.num_warps * self.num_ctas * self.programs

    @property
    def site(self) -> LaunchSite:
        return LaunchSite(**{name: getattr(self, name) for name in LaunchSite.model_fields})


class Launches(Record):
    """result.json of the compile worker."""

    nonce: str
    fault: str | None
    workloads: dict[str, tuple[Launch, ...]]


class Compiled(Record):
    """One source compiled for every workload. With a `failure` there are no launches."""

    folder: Path
    workloads: dict[str, tuple[Launch, ...]] = {}
    log: str = ""
    cached: bool = False
    wall_s: float = 0.0
    failure: str | None = None

    @property
    def recording(self) -> Recording:
        return Recording.model_validate_json((self.folder / "recording.json").read_bytes())

    def cubin(self, launch: Launch) -> bytes:
        return (self.folder / "cubins" / f"{launch.cubin}.cubin").read_bytes()


def compile_arm(problem: Problem, candidate: KernelCandidate, environment: Environment) -> Compiled:
    """Compile for the architecture in `environment`, or find it in the cache. `problem` is tuned to the candidate.

    Raises Broken for faults of ours only.
    """
    facts = {name: environment.facts[name] for name in _KEY_FACTS}
    key = digest([digest(candidate.source), dict(candidate.launch), problem.evaluator_digest, facts])
    folder = home() / "builds" / key
    kept = _from_cache(folder)
    if kept is not None:
        return kept
    arch = int(environment.facts["arch"].removeprefix("sm_"))
    asked = record(problem, candidate, environment)
    if asked.recording is None:
        return Compiled(folder=folder, log=asked.log, wall_s=asked.wall_s, failure=asked.failure)
    made = _compile(problem, asked.recording, arch, folder)
    return made.model_copy(update={"log": asked.log + made.log, "wall_s": asked.wall_s + made.wall_s})


def _compile(problem: Problem, recording: Recording, arch: int, folder: Path) -> Compiled:
    """Machine code for what was recorded of each production shape and check, kept in `folder`."""
    calls = [
        {"workload": x.name, "arguments": problem.arguments_of(x), "launches": recording.calls[x.name]}
        for x in (*problem.workloads.timings, *problem.workloads.checks)
    ]
    limits = problem.criteria.values.limits
    with staged({}, {"arch": arch, "functions": recording.functions, "calls": calls}) as stage:
        ending = stage.run("compile.py", limits)
        launches = None
        try:
            fault = fault_of(ending, None, limits)
            if fault is None:
                launches = stage.result(Launches)
                fault = fault_of(ending, launches.fault, limits)
            if launches is not None and fault is None:
                if {x: len(y) for x, y in launches.workloads.items()} != {
                    x["workload"]: len(x["launches"]) for x in calls
                }:
                    raise UntrustedResult("the process did not describe the launches of every workload")
                _keep(stage, launches, recording, folder)
        except UntrustedResult as error:
            fault = str(error)
    workloads = launches.workloads if launches is not None and fault is None else {}
    return Compiled(folder=folder, workloads=workloads, log=ending.output_tail, wall_s=ending.wall_s, failure=fault)


def _keep(stage: Stage, launches: Launches, recording: Recording, folder: Path) -> None:
    """Check the cubins that the process left and move all into the cache in one rename. Raises UntrustedResult."""
    making = folder.with_name(f"{folder.name}.{uuid4().hex}")
    (making / "cubins").mkdir(parents=True)
    try:
        for name in {launch.cubin for found in launches.workloads.values() for launch in found}:
            content = stage.read(f"cubins/{name}.cubin", _MAX_CUBIN_BYTES)
            if hashlib.sha256(content).hexdigest() != name or not content.startswith(_ELF):
                raise UntrustedResult(f"the cubin `{name[:12]}` is not what its name says")
            (making / "cubins" / f"{name}.cubin").write_bytes(content)
        (making / "launches.json").write_text(launches.model_dump_json())
        (making / "recording.json").write_text(recording.model_dump_json())
        (making / "sha256").write_text(_seal(making))
        _replace(making, folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _seal(folder: Path) -> str:
    """Digest of what is launched; each cubin is sealed by its name."""
    return digest([digest((folder / name).read_bytes()) for name in ("launches.json", "recording.json")])


def _replace(making: Path, folder: Path) -> None:
    """Whoever comes first wins; the content is the same."""
    try:
        os.rename(making, folder)
    except OSError:
        if not folder.is_dir():
            raise


def _from_cache(folder: Path) -> Compiled | None:
    """A whole, undamaged build, or None. A damaged one is moved aside, so that it is made again."""
    if not folder.is_dir():
        return None
    try:
        if (folder / "sha256").read_text() != _seal(folder):
            raise ValueError("damaged description of its launches")
        launches = Launches.model_validate_json((folder / "launches.json").read_bytes())
        Recording.model_validate_json((folder / "recording.json").read_bytes())
        for found in launches.workloads.values():
            for launch in found:
                content = (folder / "cubins" / f"{launch.cubin}.cubin").read_bytes()
                if hashlib.sha256(content).hexdigest() != launch.cubin:
                    raise ValueError(f"damaged cubin {launch.cubin}")
    except (OSError, ValueError, ValidationError):
        with suppress(FileNotFoundError):  # another run was first
            os.rename(folder, folder.with_name(f"{folder.name}.damaged-{uuid4().hex}"))
        return None
    return Compiled(folder=folder, workloads=launches.workloads, cached=True)
