"""Runs the reference and the interpreter in sandboxes of their own, and checks what they leave.

The exact results exist only here and in the reference's process; a candidate's process gets the inputs.
"""

import io
import zipfile
import zlib
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.errors import Broken
from tasks.compiled import LaunchSite
from tasks.problem import Check, Problem
from tasks.records import KernelCandidate, Record, digest
from tasks.staging import UntrustedResult, fault_of, staged

Array = NDArray[Any]
_SEED_BITS = 48
_MAX_HEADER_BYTES = 1024


class Answers(Record):
    """result.json of the reference worker: error of IEEE fp32 by regime and result."""

    nonce: str
    ieee: dict[str, dict[str, float]]


class Interpreted(Record):
    """result.json of the interpret worker."""

    nonce: str
    self_test: str | None
    fault: str | None
    unsupported: str | None = None
    workloads: dict[str, tuple[LaunchSite, ...]]


class Expected:
    """Inputs as the file that every arm gets; exact results, which no candidate sees."""

    def __init__(self, inputs: bytes, exact: dict[str, Array], ieee: dict[str, dict[str, float]]) -> None:
        self.inputs = inputs
        self.first = _arrays(inputs)
        self.exact = exact
        self.ieee = ieee


class ArmResult:
    """What one arm computed and launched, or its fault, or what of it the interpreter does not support."""

    def __init__(
        self,
        fault: str | None,
        arrays: dict[str, Array],
        sites: dict[str, tuple[LaunchSite, ...]],
        unsupported: str | None = None,
    ) -> None:
        self.unsupported = unsupported
        self.fault = fault
        self.arrays = arrays
        self.sites = sites


def make_expected(problem: Problem, seed: int) -> Expected:
    """Inputs and exact results of every check, computed in a process of their own. Raises Broken."""
    checks = [
        {**x.model_dump(mode="json", exclude_none=True), "axes": problem.axes_of(x), "seed": _check_seed(seed, x)}
        for x in problem.workloads.checks
    ]
    request = {"checks": checks, "scalars": {name: x.value for name, x in problem.definition.scalars.items()}}
    hint = "check the problem's reference.py; no candidate has run yet"
    with staged({"reference.py": problem.reference}, request) as stage:
        ending = stage.run("reference.py", problem.criteria.values.limits)
        if ending.kind != "ok":
            raise Broken(f"the reference of `{problem.name}` failed: {ending.reason}", hint)
        try:
            answers = stage.result(Answers)
            return Expected(stage.read("inputs.npz"), _arrays(stage.read("expected.npz")), answers.ieee)
        except UntrustedResult as error:
            raise Broken(f"the reference of `{problem.name}` failed: {error}", hint) from error


def _check_seed(seed: int, check: Check) -> int:
    return int(digest([seed, check.name])[: _SEED_BITS // 4], 16)


def interpret(problem: Problem, candidate: KernelCandidate, inputs: bytes) -> ArmResult:
    """Run all checks in the interpreter. Raises Broken if the interpreter fails its own test."""
    limits = problem.criteria.values.limits
    checks = [
        {"workload": x.name, "steps": x.steps, "arguments": problem.arguments_of(x)} for x in problem.workloads.checks
    ]
    request = {"entry": "run", "launch": candidate.launch, "checks": checks}
    with staged({"candidate.py": candidate.source, "inputs.npz": inputs}, request) as stage:
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
                arrays = _results(problem, stage.read("outputs.npz"), stage.nonce)
                return ArmResult(None, arrays, result.workloads)
        except UntrustedResult as error:
            fault = str(error)
    return ArmResult(fault, {}, {})


def _arrays(content: bytes) -> dict[str, Array]:
    """The arrays of an npz that our own worker wrote. Raises UntrustedResult; never unpickles."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        raise UntrustedResult(f"the arrays cannot be read: {error}") from None


def _results(problem: Problem, content: bytes, nonce: str) -> dict[str, Array]:
    """outputs.npz of a candidate's process. Nothing is unpacked before its size is known to be the one asked for."""
    wanted: dict[str, tuple[int, ...]] = {
        f"{check.name}/{x['name']}": ((check.steps, *x["shape"]) if x["role"] == "out" else tuple(x["shape"]))
        for check in problem.workloads.checks
        for x in problem.arguments_of(check)
        if x.get("role") in ("out", "in_place")
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
