"""A kernel problem as a folder that FlashInfer-Bench loads (`TraceSet.from_path`): definitions, workloads, solutions.

A tensor there has one dtype and a scalar always a value, so each combination of dtypes and null scalars that the
workloads use becomes a definition of its own. Whatever else cannot be said there is in its description, and in `notes`.
No traces are written: a trace carries the time on a GPU.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from pydantic import BaseModel, ConfigDict

from tasks.definition import Timing
from tasks.problem import Problem
from tasks.trace_inputs import Inputs, make_inputs, safetensors_of
from tasks.trace_sources import NamedCandidate, candidates_of, inputs_of, reference_source, solution_sources

AUTHOR = "infra-agent"


class Export(BaseModel):
    """Every file by its path in the folder, and what the format could not express."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: dict[str, bytes]
    notes: tuple[str, ...]


def export(problem: Problem) -> Export:
    """The same bytes each time for the same problem. Runs reference.py in the sandbox. Raises Broken as that does."""
    inputs = make_inputs(problem)
    found, left_out = candidates_of(problem)
    files: dict[str, bytes] = {}
    for name, workloads in variants(problem).items():
        files |= _variant(problem, name, workloads, inputs, found)
    return Export(files=files, notes=(*notes(problem), *left_out))


def variants(problem: Problem) -> dict[str, list[Timing]]:
    """Name of each definition, and the workloads of its dtypes and of its null scalars: checks, then timings."""
    found: dict[str, list[Timing]] = {}
    for workload in (*problem.workloads.checks, *problem.workloads.timings):
        without = [f"no_{name}" for name, value in problem.scalars_of(workload).items() if value is None]
        parts = [problem.name, workload.activation, workload.cache, *without]
        found.setdefault("__".join(x for x in parts if x), []).append(workload)
    return found


def notes(problem: Problem) -> tuple[str, ...]:
    """What the format cannot express, and what the folder holds instead."""
    definition = problem.definition
    found = [
        "one definition per combination of dtypes and null scalars: a tensor has one dtype there, a scalar a value"
    ]
    for name in (name for name in definition.inputs if definition.role_of(name) == "in_place"):
        found.append(
            f"`{name}` is changed in place: solutions copy it to the output `{name}_after` and change that, so a time "
            "measured there holds a copy that the engine does not make"
        )
    found.append(
        "limits of criteria.yaml (relative Frobenius error against fp64) have no place there: its own limits hold"
    )
    found.append("checks of several steps have only their first one there, and no twins")
    if any(x.cycle != 1 or x.share != 1 for x in problem.workloads.timings):
        found.append("cycles and shares of timings have no place there: a time there is that of one step")
    found.append(
        "timings have random inputs N(0, 1) (int8: any), apart from integers: their distributions have no place"
    )
    if definition.copies is not None:
        found.append("copies from slot to slot before a step have no place there: none is made")
    coded = sorted(
        {x for w in problem.workloads.checks for x in _dtypes(problem, w)} - {"float32", "bfloat16", "int32"}
    )
    if coded:
        found.append(
            f"scales of `{', '.join(coded)}` tensors are tensors of their own; nothing there ties them together"
        )
    return tuple(found)


def _dtypes(problem: Problem, workload: Timing) -> Iterator[str]:
    return (problem.dtype_of(x, workload) for x in problem.definition.tensors.values())


def _variant(
    problem: Problem, name: str, workloads: list[Timing], inputs: Inputs, found: Iterable[NamedCandidate]
) -> dict[str, bytes]:
    kind, first = problem.definition.op_type, workloads[0]
    files = {f"definitions/{kind}/{name}.json": _json(_definition(problem, name, first))}
    lines = []
    for workload in workloads:
        uuid = str(uuid5(NAMESPACE_URL, f"{problem.evaluator_digest}/{workload.name}"))
        blob = f"blob/workloads/{kind}/{name}/{name}_{uuid}.safetensors"
        tensors = inputs[workload.name]
        if tensors:
            files[blob] = safetensors_of(tensors)
        lines.append(_line({"definition": name, "workload": _workload(problem, workload, uuid, blob, set(tensors))}))
    files[f"workloads/{kind}/{name}.jsonl"] = b"".join(lines)
    for candidate in (x for x in found if x.fits(first)):
        solution = f"{name}__{candidate.name}"
        files[f"solutions/{kind}/{name}/{solution}.json"] = _json(_solution(problem, name, solution, candidate, first))
    return files


def _definition(problem: Problem, name: str, workload: Timing) -> dict[str, Any]:
    definition = problem.definition
    after = {f"{x}_after": t for x, t in definition.inputs.items() if definition.role_of(x) == "in_place"}
    scalars = {
        x: {"shape": None, "dtype": definition.scalars[x].dtype}
        for x, value in problem.scalars_of(workload).items()
        if value is not None
    }
    tensors = {
        x: {"shape": list(t.shape), "dtype": problem.dtype_of(t, workload), "description": t.description or None}
        for x, t in {**definition.tensors, **after}.items()
    }
    text = "\n".join([definition.description.strip(), "", "Not expressed here:", *(f"- {x}" for x in notes(problem))])
    return {
        "name": name,
        "op_type": definition.op_type,
        "axes": {x: axis.model_dump(include={"type", "value", "description"}, exclude_none=True)
                 for x, axis in definition.axes.items()},
        "inputs": {x: tensors[x] for x in inputs_of(definition)} | scalars,
        "outputs": {x: tensors[x] for x in [*definition.outputs, *after]},
        "reference": reference_source(problem, workload),
        "tags": [f"problem:{problem.name}"],
        "description": text,
    }  # fmt: skip


def _workload(problem: Problem, workload: Timing, uuid: str, blob: str, stored: set[str]) -> dict[str, Any]:
    scalars = {x: value for x, value in problem.scalars_of(workload).items() if value is not None}
    tensors: dict[str, dict[str, object]] = {
        x: {"type": "safetensors", "path": blob, "tensor_key": x} if x in stored else {"type": "random"}
        for x in inputs_of(problem.definition)
    }
    inputs = tensors | {x: {"type": "scalar", "value": value} for x, value in scalars.items()}
    return {"axes": workload.axes, "inputs": inputs, "uuid": uuid}


def _solution(
    problem: Problem, definition: str, name: str, candidate: NamedCandidate, workload: Timing
) -> dict[str, Any]:
    on_gpu = problem.definition.runs_on == "gpu"
    sources = solution_sources(problem, candidate.kernel, workload)
    return {
        "name": name,
        "definition": definition,
        "author": AUTHOR,
        "spec": {
            "language": "triton" if on_gpu else "python",
            "target_hardware": ["cuda" if on_gpu else "cpu"],
            "entry_point": "main.py::run",
            "destination_passing_style": True,
        },
        "sources": [{"path": path, "content": content} for path, content in sources.items()],
        "description": candidate.description,
    }


def _json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _line(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, ensure_ascii=False) + "\n").encode()
