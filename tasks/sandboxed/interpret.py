"""Runs what a candidate asked to launch in the Triton interpreter, from the text of its kernels, on given inputs.

The candidate itself never runs here: the list of launches is the one that was compiled.

Inputs come from inputs.npz (`workload/name`, per-step inputs with a leading axis), results go to outputs.npz as
float32. Outputs and scratch are filled with poison before each call.
"""

# mypy: ignore-errors

import inspect
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, os.path.dirname(__file__))

import numpy as np
import rounding
import torch
import worker
from buffers import Buffers
from guarded import Interpreter
from rebuilt import rebuild

POISON = 77
SCRATCH_POISON = (0xFF, 0x4D)  # bytes: NaN in every float type, then a number in every one


def bits_equal(x, y):
    return torch.equal(x.view(torch.uint8), y.view(torch.uint8))


def launch(launch, functions, buffers, interpreter):
    """Run one launch. Returns what it was, in the words of the compile worker."""
    function = functions[launch["function"]]
    values = {name: buffers.argument(x, functions) for name, x in launch["arguments"].items()}
    interpreter.launch(function, tuple(launch["grid"]), values, buffers.tensors.values())
    fixed = constexprs(function)
    return {
        "kernel": function.__name__, "source": function.recorded_digest, "grid": launch["grid"],
        "constexprs": {name: worker.plain(x) for name, x in values.items() if name in fixed},
        "scalars": worker.scalars({name: x for name, x in values.items() if name not in fixed}),
    }  # fmt: skip


def constexprs(function):
    """Names of the parameters that are compiled in."""
    known = inspect.signature(function.fn).parameters
    return {n for n, p in known.items() if "constexpr" in str(getattr(p.annotation, "__name__", p.annotation))}


def run_step(check, functions, tensors, step, interpreter):
    """One call. `tensors` holds this step's inputs; results are changed in place. Returns the launches."""
    results = {x["name"] for x in check["arguments"] if x.get("role") in ("out", "in_place")}
    before = {name: x.clone() for name, x in tensors.items() if name not in results}
    buffers = Buffers(tensors, SCRATCH_POISON[step % 2])
    seen = [launch(x, functions, buffers, interpreter) for x in check["launches"]]
    for name, x in before.items():
        if not bits_equal(x, tensors[name]):
            raise worker.CandidateFault(f"the input `{name}` was changed")
    return seen


def load_inputs(check, stored, specs):
    """Every given tensor of a run, in the dtype of its argument; of a twin, the entries that it takes of each axis."""
    given = {}
    for name, x in specs.items():
        if x["role"] == "out":
            continue
        tensor = torch.from_numpy(stored[f"{check['of']}/{name}"]).to(getattr(torch, x["dtype"]))
        for axis, entries in check["take"].items():
            if axis in x["axes"]:
                dim = x["axes"].index(axis) + (x["role"] == "step")
                tensor = tensor.index_select(dim, torch.tensor(entries))
        given[name] = tensor.contiguous()
    return given


def step_tensors(given, specs, step):
    """Fresh copies for one call; outputs hold NaN or, at every second step and in integers, a number that is no answer."""
    tensors = {}
    for name, x in specs.items():
        if x["role"] == "out":
            poison = torch.nan if x["dtype"].startswith(("float", "bfloat")) and step % 2 == 0 else POISON
            tensors[name] = torch.full(x["shape"], poison).to(getattr(torch, x["dtype"]))
        elif x["role"] != "in_place":
            tensors[name] = (given[name][step] if x["role"] == "step" else given[name]).clone()
    return tensors


def copy_slots(check, stored, step, kept):
    """What the caller does before a step: the contents of one slot to another."""
    source, target = stored[f"{check['of']}/{check['copies']}"][step].tolist() if check["copies"] else (-1, -1)
    if source >= 0:
        for name in check["slotted"]:
            kept[name][target] = kept[name][source]


def run_check(check, functions, stored, interpreter):
    """All steps of one regime. Returns (arrays by name, launches of the last step)."""
    rounding.assume(check["tensor_cores"])
    specs = {x["name"]: x for x in check["arguments"] if "shape" in x}
    given = load_inputs(check, stored, specs)
    kept = {name: given[name].clone() for name, x in specs.items() if x["role"] == "in_place"}
    outputs = {name: [] for name, x in specs.items() if x["role"] == "out"}
    interpreter.counts.begin()
    for step in range(check["steps"]):
        copy_slots(check, stored, step, kept)
        tensors = step_tensors(given, specs, step) | kept
        seen = run_step(check, functions, tensors, step, interpreter)
        if step + 1 == check["counted_steps"]:
            interpreter.counts.keep(check["workload"])
        for name, collected in outputs.items():
            collected.append(tensors[name].float().clone())
    arrays = {name: torch.stack(x).numpy() for name, x in outputs.items()}
    return arrays | {name: x.float().numpy() for name, x in kept.items()}, seen


def main():
    request = worker.read_request()
    torch.set_num_threads(1)
    rounding.install()
    broken = rounding.self_test()
    if broken is not None:
        worker.write_result(request, self_test=broken, fault=None, workloads={})
        return
    interpreter = Interpreter(str(request["functions"]), request["arch"])
    interpreter.install()
    arrays, workloads = {}, {}
    try:
        functions = rebuild(request["functions"])
        with np.load(worker.STAGE / "inputs.npz", allow_pickle=False) as stored:
            for check in request["checks"]:
                found, workloads[check["workload"]] = run_check(check, functions, stored, interpreter)
                arrays |= {f"{check['workload']}/{name}": x for name, x in found.items()}
    except Exception as error:  # noqa: BLE001 - what a candidate's kernels raise is the result
        kind = "unsupported" if interpreter.lacking else "fault"
        worker.write_result(
            request, **{"self_test": None, "fault": None, "workloads": {}, kind: worker.describe(error)}
        )
        return
    np.savez(worker.STAGE / "outputs.npz", nonce=np.array(request["nonce"]), **arrays)
    counted = interpreter.counts.kept
    worker.write_result(request, self_test=None, fault=None, workloads=workloads, counted=counted)


main()
