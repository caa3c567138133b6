"""Input tensors for the workloads of an exported problem, made by the problem's own reference.py in the sandbox."""

import io
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from serving.errors import Broken
from tasks.definition import Check, Timing
from tasks.problem import Problem
from tasks.staging import UntrustedResult, staged
from tasks.trace_sources import inputs_of

Inputs = dict[str, dict[str, torch.Tensor]]
SEED = 0


def make_inputs(problem: Problem) -> Inputs:
    """{workload: {input: tensor}}: of a check all inputs of its first step, of a timing its integers alone.

    Values of the other inputs of a timing do not matter for its time, and would take gigabytes. Raises Broken.
    """
    workloads = (*problem.workloads.checks, *problem.workloads.timings)
    request = {"workloads": [_request(problem, x) for x in workloads]}
    hint = "check the problem's reference.py"
    with staged({"reference.py": problem.reference}, request) as stage:
        limits = problem.criteria.values.limits
        ending = stage.run("inputs.py", limits)
        if ending.kind != "ok":
            raise Broken(f"the reference of `{problem.name}` makes no inputs: {ending.reason}", hint)
        try:
            with np.load(io.BytesIO(stage.read("inputs.npz", limits.file_bytes)), allow_pickle=False) as stored:
                return {x.name: _tensors(problem, x, stored) for x in workloads}
        except (UntrustedResult, ValueError, KeyError) as error:
            raise Broken(f"the reference of `{problem.name}` makes no inputs: {error}", hint) from error


def safetensors_of(tensors: dict[str, torch.Tensor]) -> bytes:
    return bytes(save(tensors))


def _names(problem: Problem, workload: Timing) -> list[str]:
    inputs = problem.definition.inputs
    return [n for n in inputs_of(problem.definition) if isinstance(workload, Check) or inputs[n].dtype == "int32"]


def _request(problem: Problem, workload: Timing) -> dict[str, Any]:
    """Of a timing, every axis that no integer has or points into has size 1: its other inputs are thrown away."""
    described = {"inputs": {}, "steps": 1, **workload.model_dump(mode="json", exclude_none=True)}
    axes = problem.axes_of(workload)
    if not isinstance(workload, Check):
        inputs = problem.definition.inputs
        kept = {axis for x in inputs.values() if x.dtype == "int32" for axis in x.shape}
        kept |= {x.shape[0] for x in inputs.values() if x.slots is not None}
        axes |= {name: 1 for name in workload.axes if name not in kept}
    names = _names(problem, workload)
    return {**described, "axes": axes, "scalars": problem.reference_scalars(workload), "seed": SEED, "names": names}


def _tensors(problem: Problem, workload: Timing, stored: Any) -> dict[str, torch.Tensor]:
    found = {}
    for name in _names(problem, workload):
        dtype = getattr(torch, problem.dtype_of(problem.definition.inputs[name], workload))
        found[name] = torch.from_numpy(np.ascontiguousarray(stored[f"{workload.name}/{name}"])).to(dtype)
    return found
