"""What the dtype of a cache loses over a long generation, in fp64: docs/results/cache_drift.md.

    .venv/bin/python -P benchmarks/cache_drift.py [--steps N] [--out FILE]

State: relative error of the outputs of the second half of a generation, the state quantised at each write-back or at each
flush of 8 or 16 steps, against one that is never quantised; the ring between two flushes is exact. KV: attention over as many
cached tokens, quantised by token, with one key channel 8 times the others. Each figure is over three draws side by side, and
is given for two seeds.
"""

import argparse
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tasks.problem import KERNELS

K = V = 128
SEEDS = (1, 2)
FORMATS = ("bfloat16", "int8", "float8_e4m3fn")
SCALARS = {"scale": K**-0.5, "lower_bound": -5.0}
STILL = {"A_log": {"std": 0.0}}
REGIMES: dict[str, dict[str, Any]] = {
    "gate input 0 (fast decay)": {**STILL},
    "gate input -4 (slow decay)": {**STILL, "a": {"mean": -4.0}, "b": {"mean": -3.0}},
    "gate input -8 (hardly any decay)": {**STILL, "a": {"mean": -8.0}, "b": {"mean": -3.0}},
}


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=1024)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    reference = load()
    lines = ["| cache | regime | each write-back | flush, L = 8 | flush, L = 16 |", "|---|---|---|---|---|"]
    for cache in FORMATS:
        for name, inputs in REGIMES.items():
            cells = [figures(reference, inputs, cache, every, chosen.steps) for every in (1, 8, 16)]
            lines.append(f"| state in {cache} | {name} | " + " | ".join(cells) + " |")
        kv = [reference.kv_drift(reference.drawer({"inputs": {}}, seed)[1], chosen.steps, K, cache) for seed in SEEDS]
        lines.append(f"| KV in {cache} | one outlier channel | {text(kv)} | | |")
        print("\n".join(lines[-4:]), flush=True)
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n")


def figures(reference: ModuleType, inputs: dict[str, Any], cache: str, every: int, steps: int) -> str:
    found = []
    for seed in SEEDS:
        _, draw = reference.drawer({"inputs": inputs}, seed)
        tokens = {n: x.double() for n, x in reference.tokens_of(draw, steps, reference.DRAWS, 1, K, V).items()}
        fixed = {"A_log": draw("A_log", 1).double(), "dt_bias": draw("dt_bias", 1, K).double()}
        state = draw("state", reference.DRAWS, 1, V, K).double()
        found.append(reference.state_drift(tokens, fixed, state, SCALARS, cache, every))
    return text(found)


def text(found: list[float]) -> str:
    return ", ".join(f"{x:.1e}" for x in found)


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", KERNELS / "cache_quant" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
