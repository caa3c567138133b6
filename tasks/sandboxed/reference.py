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


def relative_error(x, exact):
    return ((x.double() - exact).norm() / exact.norm()).item()


def answer(reference, check, fixed, per_step, scalars, dtype):
    """All steps in `dtype`: (outputs [steps, ...], last state)."""
    state, outputs = fixed["state"].to(dtype), []
    still = {name: x for name, x in fixed.items() if name != "state"}
    for step in range(check["steps"]):
        now = {name: x[step] for name, x in per_step.items()}
        out, state = reference.step(**now, **still, state=state, **scalars, dtype=dtype)
        outputs.append(out)
    return torch.stack(outputs), state


def main():
    torch.set_num_threads(1)
    request = json.loads((STAGE / "request.json").read_text())
    reference, inputs, expected, ieee = load_reference(), {}, {}, {}
    for check in request["checks"]:
        name = check["name"]
        fixed, per_step = reference.make_inputs(check, check["axes"], check["seed"])
        inputs |= {
            f"{name}/{k}": (x.float() if x.is_floating_point() else x).numpy() for k, x in {**fixed, **per_step}.items()
        }
        used = fixed["state_index"].long()
        out, state = answer(reference, check, fixed, per_step, request["scalars"], torch.float64)
        out32, state32 = answer(reference, check, fixed, per_step, request["scalars"], torch.float32)
        stored = out32.to(getattr(torch, check["activation"]))
        expected |= {f"{name}/out": out.numpy(), f"{name}/state": state.numpy()}
        ieee[name] = {"out": relative_error(stored, out), "state": relative_error(state32[used], state[used])}
    np.savez(STAGE / "inputs.npz", **inputs)
    np.savez(STAGE / "expected.npz", nonce=np.array(request["nonce"]), **expected)
    (STAGE / "result.json").write_text(json.dumps({"nonce": request["nonce"], "ieee": ieee}))


main()
