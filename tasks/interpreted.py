"""Runs the reference and the interpreter in sandboxes of their own, and checks what they leave.

The exact results exist only here and in the reference's process; a candidate's process gets the inputs.
"""

import io
import zipfile
import zlib
from math import prod
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from serving.errors import Broken
from tasks.compiled import LaunchSite
from tasks.definition import Check
from tasks.problem import Problem
from tasks.recorded import RECORDED_ARCH, Recording
from tasks.records import Record, digest
from tasks.staging import UntrustedResult, fault_of, staged
from tasks.twins import Array, Run, results_of, runs_of, shaped

_SEED_BITS = 48
_MAX_HEADER_BYTES = 1024


class Answers(Record):
    """result.json of the reference worker: error of IEEE fp32 by regime and result, drift of the cache's dtype by regime
    and what is kept in it."""

    nonce: str
    ieee: dict[str, dict[str, float]]
    drift: dict[str, dict[str, float]] = {}


class Counted(Record):
    """Of one kernel in the counted steps: bytes, and in how many of its programs a stretch of lines ran, by its first."""

    programs: Annotated[int, Field(ge=0)]
    requested_bytes: Annotated[int, Field(ge=0)]
    unique_bytes: Annotated[int, Field(ge=0)]
    ran_in: dict[int, Annotated[int, Field(ge=0)]]


class Interpreted(Record):
    """result.json of the interpret worker."""

    nonce: str
    self_test: str | None
    fault: str | None
    unsupported: str | None = None
    workloads: dict[str, tuple[LaunchSite, ...]]
    counted: dict[str, dict[str, Counted]] = {}


class Expected:
    """Inputs as the file that every arm gets; exact results and the like, which no candidate sees."""

    def __init__(self, inputs: bytes, exact: dict[str, Array], answers: Answers) -> None:
        self.inputs = inputs
        self.first = arrays_of(inputs)
        self.exact = exact
        self.ieee = answers.ieee
        self.drift = answers.drift


class ArmResult:
    """What one arm computed and launched, or its fault, or what of it the interpreter does not support."""

    def __init__(
        self,
        fault: str | None,
        arrays: dict[str, Array],
        sites: dict[str, tuple[LaunchSite, ...]],
        unsupported: str | None = None,
        counted: dict[str, dict[str, Counted]] | None = None,
    ) -> None:
        self.counted = counted or {}
        self.unsupported = unsupported
        self.fault = fault
        self.arrays = arrays
        self.sites = sites


def make_expected(problem: Problem, seed: int) -> Expected:
    """Inputs and exact results of every check, computed in a process of their own. Raises Broken."""
    checks = [{**problem.for_reference(x), "seed": _check_seed(seed, x)} for x in problem.workloads.checks]
    request = {"checks": checks}
    hint = "check the problem's reference.py; no candidate has run yet"
    limits = problem.criteria.values.limits
    with staged({"reference.py": problem.reference}, request) as stage:
        ending = stage.run("reference.py", limits)
        if ending.kind != "ok":
            raise Broken(f"the reference of `{problem.name}` failed: {ending.reason}", hint)
        try:
            answers = stage.result(Answers)
            given, exact = (stage.read(f"{name}.npz", limits.file_bytes) for name in ("inputs", "expected"))
            return Expected(given, arrays_of(exact), answers)
        except UntrustedResult as error:
            raise Broken(f"the reference of `{problem.name}` failed: {error}", hint) from error


def _check_seed(seed: int, check: Check) -> int:
    return int(digest([seed, check.name])[: _SEED_BITS // 4], 16)


def interpret(problem: Problem, recording: Recording, inputs: bytes) -> ArmResult:
    """Run the launches of all checks in the interpreter. Raises Broken if the interpreter fails its own test."""
    limits = problem.criteria.values.limits
    runs = [
        {**_request(problem, x, run), "launches": recording.calls[run.name]}
        for x in problem.workloads.checks
        for run in runs_of(x)
        if run.name in recording.calls
    ]
    request = {"arch": RECORDED_ARCH, "functions": recording.functions, "checks": runs}
    with staged({"inputs.npz": inputs}, request) as stage:
        ending = stage.run("interpret.py", limits)
        fault = fault_of(ending, None, limits)
        try:
            if fault is None:
                result = stage.result(Interpreted)
                if result.self_test is not None:
                    raise Broken(
                        f"the Triton interpreter cannot be trusted: {result.self_test}", "pin the Triton version"
                    )
                fault = fault_of(ending, result.fault, limits)
                if fault is None and result.unsupported is not None:
                    return ArmResult(None, {}, {}, result.unsupported)
            if fault is None:
                arrays = _results(problem, stage.read("outputs.npz"), stage.nonce, recording.skipped)
                return ArmResult(None, arrays, result.workloads, counted=result.counted)
        except UntrustedResult as error:
            fault = str(error)
    return ArmResult(fault, {}, {})


def _request(problem: Problem, check: Check, run: Run) -> dict[str, Any]:
    """A run for the worker."""
    return {
        "workload": run.name,
        "of": run.of,
        "steps": check.steps,
        "counted_steps": counted_steps(problem, check) if run.name == check.name else 0,
        "take": {run.axis: run.entries} if run.axis else {},
        "copies": problem.definition.copies,
        "slotted": [x.name for x in problem.results_of(check) if x.slots is not None],
        "tensor_cores": run.tensor_cores,
        "arguments": problem.arguments_of(shaped(check, run)),
    }


def counted_steps(problem: Problem, check: Check) -> int:
    """The steps whose work is counted: whole cycles of the production shapes of its kind. 0 if it has not even one."""
    kind = problem.kind_of(check)
    same = [x for x in problem.workloads.timings if problem.kind_of(x) == kind]
    return check.steps - check.steps % max((problem.cycle_of(x) for x in same), default=problem.cycle_of(check))


def arrays_of(content: bytes) -> dict[str, Array]:
    """The arrays of an npz that our own worker wrote. Raises UntrustedResult; never unpickles."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        raise UntrustedResult(f"the arrays cannot be read: {error}") from None


def _results(problem: Problem, content: bytes, nonce: str, skipped: tuple[str, ...] = ()) -> dict[str, Array]:
    """outputs.npz of a candidate's process. Nothing is unpacked before its size is known to be the one asked for.

    Only runs with launch options of their own may be skipped: not every source has them.
    """
    wanted: dict[str, tuple[int, ...]] = {
        f"{run.name}/{x.name}": x.shape if x.in_place else (check.steps, *x.shape)
        for check in problem.workloads.checks
        for run in runs_of(check)
        for x in results_of(problem, check, run)
        if not (run.options and run.name in skipped)
    }
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sorted(archive.namelist()) != sorted(f"{name}.npy" for name in [*wanted, "nonce"]):
                raise UntrustedResult("outputs.npz does not hold the results that were asked for")
            if str(_member(archive, "nonce", (), np.dtype(f"<U{len(nonce)}"))) != nonce:
                raise UntrustedResult("outputs.npz does not carry the nonce of the request")
            return {name: _member(archive, name, shape, np.dtype(np.float32)) for name, shape in wanted.items()}
    except (ValueError, OSError, KeyError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
        raise UntrustedResult(f"the arrays cannot be read: {error}") from None


def _member(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """One array, read to the last byte that it should have and no further."""
    size = prod(shape) * dtype.itemsize
    entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type != zipfile.ZIP_STORED or not size <= entry.file_size <= size + _MAX_HEADER_BYTES:
        raise UntrustedResult(f"`{name}` in outputs.npz does not have the size that was asked for")
    with archive.open(entry) as file:
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        version = np.lib.format.read_magic(file)
        if version not in read or read[version](file) != (shape, False, dtype):
            raise UntrustedResult(f"`{name}` in outputs.npz does not have the shape or dtype that was asked for")
        return np.frombuffer(file.read(size), dtype).reshape(shape)
