"""Makes the inputs of every check, and what the right answers are: fp64, and the error that IEEE fp32 makes itself.

Runs before and apart from any candidate, with the problem's reference.py. Writes inputs.npz, which candidates may read,
and expected.npz and result.json, which stay with the parent.
"""

# mypy: ignore-errors

import importlib.util
import json
from pathlib import Path

import numpy as np
import torch

STAGE = Path("/stage")


def load_reference():
    spec = importlib.util.spec_from_file_location("reference", STAGE / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def copy_slots(pair, kept, names):
    """What the caller does before a step, in new tensors: `pair` holds from and to, or -1, -1."""
    if pair is not None and pair[0] >= 0:
        source, target = pair.tolist()
        for name in names:
            kept[name] = kept[name].clone()
            kept[name][target] = kept[name][source]


def answer(reference, check, fixed, per_step, dtype):
    """All steps in `dtype`: outputs with a leading axis of steps, and what was changed in place, at the end."""
    kept = {x["name"]: fixed[x["name"]] for x in check["results"] if x["in_place"]}
    outputs = {x["name"]: [] for x in check["results"] if not x["in_place"]}
    for step in range(check["steps"]):
        now = {name: x[step] for name, x in per_step.items()}
        copy_slots(now.get(check["copies"]), kept, [x["name"] for x in check["results"] if x["slots"]])
        found = reference.step({**fixed, **now, **kept}, check["scalars"], dtype)
        kept = {name: found[name] for name in kept}
        for name, collected in outputs.items():
            collected.append(found[name])
    return {name: torch.stack(x) for name, x in outputs.items()} | kept


def used(result, given, copies):
    """The entries of a result that may change: all, or those slots that some step names or copies to."""
    if result["slots"] is None:
        return slice(None)
    named = given[result["slots"]].long().flatten()
    copied = given[copies][:, 1].long() if copies else named[:0]
    return torch.cat([named, copied[copied >= 0]]).unique()


def rounding(result, found, exact, where):
    """Relative error of fp32 in the dtype that the result is stored in, at the entries `where`."""
    stored = found.to(getattr(torch, result["dtype"])).double()[where]
    return ((stored - exact.double()[where]).norm() / exact.double()[where].norm().clamp_min(1e-300)).item()


def as_array(x):
    return (x.float() if x.is_floating_point() else x).numpy()


def main():
    torch.set_num_threads(1)
    request = json.loads((STAGE / "request.json").read_text())
    reference, inputs, expected, ieee, drift = load_reference(), {}, {}, {}, {}
    for check in request["checks"]:
        name = check["name"]
        fixed, per_step = reference.make_inputs(check, check["axes"], check["seed"])
        inputs |= {f"{name}/{k}": as_array(x) for k, x in {**fixed, **per_step}.items()}
        exact = answer(reference, check, fixed, per_step, torch.float64)
        single = answer(reference, check, fixed, per_step, torch.float32)
        expected |= {f"{name}/{k}": (x.double() if x.is_floating_point() else x).numpy() for k, x in exact.items()}
        given = {**fixed, **per_step}
        ieee[name] = {
            x["name"]: rounding(x, single[x["name"]], exact[x["name"]], used(x, given, check["copies"]))
            for x in check["results"]
        }
        if check.get("drift_steps") is not None:
            drift[name] = reference.drift(check, check["axes"], check["seed"])
    np.savez(STAGE / "inputs.npz", **inputs)
    np.savez(STAGE / "expected.npz", nonce=np.array(request["nonce"]), **expected)
    (STAGE / "result.json").write_text(json.dumps({"nonce": request["nonce"], "ieee": ieee, "drift": drift}))


main()
