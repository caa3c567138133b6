"""What a peer's or our own kernel compiles to and computes, in the sandbox, all by the same worker."""

import io
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from serving.engine_env import engine_folder
from tasks.compiled import Compiled, Launch
from tasks.definition import Check
from tasks.gpus import occupancy
from tasks.interpreted import Expected
from tasks.numerics import relative_error
from tasks.problem import Problem
from tasks.sass import Code, read_code
from tasks.staging import staged
from tasks.twins import Array

HERE = Path(__file__).parent
KERNELS_OF_SGLANG = "lib/python3.*/site-packages/sglang/kernels/ops/attention/linear"


class Source(BaseModel):
    """`wheel` names files of SGLang's kernels that are staged beside the adapter. `of`: version of what runs."""

    model_config = ConfigDict(frozen=True)

    name: str
    of: str
    adapter: str
    launch: dict[str, Any] = {}
    wheel: tuple[str, ...] = ()


class Answer(BaseModel):
    """result.json of the worker."""

    nonce: str
    fault: str | None
    workloads: dict[str, tuple[Launch, ...]] = {}
    operations: dict[str, tuple[str, ...]] = {}
    unique_bytes: dict[str, float] = {}


class Counts(BaseModel):
    """Of one step of one production shape. `instructions` and `mufu` of all warps, as the code stands.

    `loops`: the code has a loop, whose instructions count once however often it runs.
    """

    instructions: int
    mufu: int
    registers: int
    spill_bytes: int
    programs: int
    warps: int
    programs_per_sm: int
    launches: int
    torch_operations: int
    loops: bool


class Built(BaseModel):
    """One source for one architecture, or why not."""

    fault: str | None
    counts: dict[str, Counts] = {}
    compiled: Compiled | None = None


class Checked(BaseModel):
    """Relative errors against fp64 by `check/result`, and unique bytes of a step by check; or why not."""

    fault: str | None
    errors: dict[str, float | None] = {}
    unique_bytes: dict[str, float] = {}


def files_of(source: Source) -> dict[str, str | bytes]:
    """What the sandbox gets. Raises FileNotFoundError where SGLang is not installed."""
    found: dict[str, str | bytes] = {"worker.py": (HERE / "worker.py").read_text(), "adapter.py": source.adapter}
    for name in source.wheel:
        places = list(engine_folder().glob(f"{KERNELS_OF_SGLANG}/{name}"))
        if not places:
            raise FileNotFoundError(f"no `{name}` in `{engine_folder()}`: run `make engine`")
        found[name] = places[0].read_text()
    return found


def build(problem: Problem, source: Source, arch: int) -> Built:
    """Counts at every production shape. Raises Broken as the sandbox does."""
    calls = [{"workload": w.name, "arguments": problem.arguments_of(w)} for w in problem.workloads.timings]
    request = {"mode": "compile", "arch": arch, "launch": source.launch, "calls": calls}
    folder = Path(mkdtemp(prefix="infra-agent-peer-"))
    with staged(files_of(source), request) as stage:
        ending = stage.run("/stage/worker.py", problem.criteria.values.limits)
        if ending.kind != "ok":
            return Built(fault=ending.reason)
        answer = stage.result(Answer)
        if answer.fault is not None:
            return Built(fault=answer.fault)
        (folder / "cubins").mkdir()
        for name in {x.cubin for found in answer.workloads.values() for x in found}:
            content = stage.read(f"cubins/{name}.cubin", 16 << 20)
            (folder / "cubins" / f"{name}.cubin").write_bytes(content)
    compiled = Compiled(folder=folder, workloads=answer.workloads)
    distinct = {x.cubin: x for found in answer.workloads.values() for x in found}
    read = {name: read_code(compiled.cubin(x)) for name, x in distinct.items()}
    counts = {name: _counts(found, read, answer.operations[name]) for name, found in answer.workloads.items()}
    return Built(fault=None, counts=counts, compiled=compiled)


def _counts(launches: tuple[Launch, ...], codes: dict[str, Code], operations: tuple[str, ...]) -> Counts:
    largest = max(launches, key=lambda x: x.warps)
    code = codes[largest.cubin]
    shared = max(largest.shared_bytes, code.static_shared_bytes)
    return Counts(
        instructions=sum(codes[x.cubin].instructions * x.warps for x in launches),
        mufu=sum(sum(codes[x.cubin].mufu.values()) * x.warps for x in launches),
        registers=max(codes[x.cubin].registers for x in launches),
        spill_bytes=max(codes[x.cubin].spill_bytes for x in launches),
        programs=largest.programs,
        warps=sum(x.warps for x in launches),
        programs_per_sm=occupancy(largest.num_warps, code.registers, shared).programs,
        launches=len(launches) + len(operations),
        torch_operations=len(operations),
        loops=any(codes[x.cubin].loops for x in launches),
    )


def check(problem: Problem, source: Source, checks: list[Check], expected: Expected) -> Checked:
    """Results of all `checks` in the interpreter against fp64. Raises Broken as the sandbox does."""
    calls = [{"workload": x.name, "steps": x.steps, "arguments": problem.arguments_of(x)} for x in checks]
    request = {"mode": "interpret", "launch": source.launch, "calls": calls}
    with staged({**files_of(source), "inputs.npz": expected.inputs}, request) as stage:
        ending = stage.run("/stage/worker.py", problem.criteria.values.limits)
        if ending.kind != "ok":
            return Checked(fault=ending.reason)
        answer = stage.result(Answer)
        if answer.fault is not None:
            return Checked(fault=answer.fault)
        arrays = _arrays(stage.read("outputs.npz"))
    errors = {
        f"{x.name}/{name}": relative_error(*_used(problem, x, name, arrays, expected))
        for x in checks
        for name in ("out", "state")
    }
    return Checked(fault=None, errors=errors, unique_bytes=answer.unique_bytes)


def _used(problem: Problem, check: Check, name: str, arrays: dict[str, Array], expected: Expected) -> list[Array]:
    """(found, exact) without the slots that no step uses."""
    pair = [arrays[f"{check.name}/{name}"], expected.exact[f"{check.name}/{name}"]]
    result = next(x for x in problem.results_of(check) if x.name == name)
    if result.slots is None:
        return pair
    slots = np.unique(expected.first[f"{check.name}/{result.slots}"])
    return [x[slots] for x in pair]


def _arrays(content: bytes) -> dict[str, Array]:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
