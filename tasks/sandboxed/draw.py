"""Draws the inputs of every timing with the problem's reference.py, before any candidate runs, to inputs.npz."""

# mypy: ignore-errors

import importlib.util
import json
from pathlib import Path

import numpy as np
import torch

STAGE = Path("/stage")


def main():
    torch.set_num_threads(1)
    request, drawn = json.loads((STAGE / "request.json").read_text()), {}
    spec = importlib.util.spec_from_file_location("reference", STAGE / "reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    for workload in request["workloads"]:
        fixed, per_step = reference.make_inputs(workload, workload["axes"], workload["seed"])
        for name, x in {**fixed, **per_step}.items():
            drawn[f"{workload['name']}/{name}"] = (x.float() if x.is_floating_point() else x).numpy()
    np.savez(STAGE / "inputs.npz", **drawn)


main()
