"""Makes inputs with the problem's reference.py, and keeps those that were asked for: first step only, in inputs.npz."""

# mypy: ignore-errors

import importlib.util
import json
from pathlib import Path

import numpy as np
import torch

STAGE = Path("/stage")


def main():
    torch.set_num_threads(1)
    request = json.loads((STAGE / "request.json").read_text())
    spec = importlib.util.spec_from_file_location("reference", STAGE / "reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    kept = {}
    for asked in request["workloads"]:
        fixed, per_step = reference.make_inputs(asked, asked["axes"], asked["seed"])
        now = {**fixed, **{name: x[0] for name, x in per_step.items()}}
        for name in asked["names"]:
            x = now[name]
            kept[f"{asked['name']}/{name}"] = (x.float() if x.is_floating_point() else x).numpy()
    np.savez(STAGE / "inputs.npz", **kept)


main()
