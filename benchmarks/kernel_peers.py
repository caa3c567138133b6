"""Our KDA decode kernels beside those that FLA and SGLang ship, by the same tools, in one run.

    .venv/bin/python -P benchmarks/kernel_peers.py [--json FILE] [--page FILE]

Needs `.venv-engine` (`make engine`) for SGLang's files. Counts and errors need no GPU; times do, and are `not run` without
one. `--page` writes docs/results/kernel_peers.md or another file.
"""

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # with -P a script's folder is not on the path

from peers.measured import HERE, Built, Checked, Source, build, check
from peers.page import page

from serving.engine_env import version_in_engine
from tasks.build import ARCHITECTURES
from tasks.definition import Check, Timing
from tasks.gpus import floor_us, gpu_of
from tasks.interpreted import make_expected
from tasks.microbench import gpu, replay
from tasks.problem import Problem, load_problem
from tasks.records import Arm
from tasks.toolchain import cpu_model, environment

SEED = 0
RECURRENT = ("fused_sigmoid_gating_recurrent.py",)
REPLAY = ("fused_recurrent_linear_replayssm.py",)
BYTES_AT = "default_bf16"
BYTES_OF = {"float32": 4, "int32": 4, "bfloat16": 2}
CHECKS = {
    "kda_decode": ("default_fp32", BYTES_AT, "slow_decay_fp32", "strong_decay_fp32", "small_keys_fp32",
                   "unbounded_gate_fp32"),
    "kda_replay_decode": ("unbounded_gate_fp32",),
}  # fmt: skip


def sources_of(problem: Problem) -> list[Source]:
    """Ours first: the incumbent, then what the hypotheses found."""
    ours = {"kda_decode": ("fma_chain",), "kda_replay_decode": ("matvec",)}[problem.name]
    found = [Source(name="ours: incumbent", of="this repository", adapter=problem.incumbent.source)]
    for name in ours:
        text = (problem.folder / f"{name}.py").read_text()
        found.append(Source(name=f"ours: {name}", of="this repository", adapter=text))
    sglang = f"sglang {version_in_engine('sglang') or 'not installed'}"
    if problem.name == "kda_replay_decode":
        text = (HERE / "sglang_replay.py").read_text()
        return [*found, Source(name="SGLang ReplaySSM", of=sglang, adapter=text, wheel=REPLAY)]
    fla = Source(name="FLA", of=f"fla-core {version('fla-core')}", adapter=(HERE / "fla.py").read_text())
    text = (HERE / "sglang.py").read_text()
    return [*found, fla, Source(name="SGLang", of=sglang, adapter=text, wheel=RECURRENT)]


def floor_bytes(problem: Problem, workload: Timing) -> int:
    """Bytes that a step must move, in the mean of a cycle: a state both ways, or with a ring of L steps written once in L."""
    axes = problem.axes_of(workload)
    steps = axes.get("L")
    total = 0.0
    for x in (x for x in problem.arguments_of(workload) if "shape" in x):
        elements = prod(
            axes["B"] if axis == "slots" else size for axis, size in zip(x["axes"], x["shape"], strict=True)
        )
        passes = 1.0
        if x["role"] == "in_place" and steps is None:
            passes = 2.0
        elif x["role"] == "in_place" and steps is not None:
            # A ring is half full in the mean, and gets an entry in all steps but the last.
            passes = ((steps - 1) / 2 + (steps - 1) / steps) / steps if "L" in x["axes"] else 1 + 1 / steps
        total += passes * elements * BYTES_OF[x["dtype"]]
    return round(total)


def times_us(problem: Problem, ours: Built, theirs: Built) -> dict[str, float] | None:
    """Median GPU time per production shape, each peer beside the incumbent; None without a GPU. Not yet run on one."""
    if gpu() is None or ours.compiled is None or theirs.compiled is None:
        return None
    compiled = {Arm.INCUMBENT: ours.compiled, Arm.CANDIDATE: theirs.compiled}
    samples = replay(dict.fromkeys(compiled, problem), compiled, SEED).samples
    return {
        w.name: median(x.time_us for x in samples if (x.workload, x.arm) == (w.name, Arm.CANDIDATE))
        for w in problem.workloads.timings
    }


def measure(problem: Problem) -> dict[str, Any]:
    """Everything about all sources of one problem, as JSON."""
    checks = [x for x in problem.workloads.checks if x.name in CHECKS[problem.name]]
    checks = [Check(**{**x.model_dump(), "steps": min(x.steps, 4), "twins": ()}) for x in checks]
    few = problem.workloads.model_copy(update={"checks": tuple(checks)})
    expected = make_expected(problem.model_copy(update={"workloads": few}), SEED)
    rows, first = [], None
    for source in sources_of(problem):
        print(f"{problem.name}: {source.name} ...", flush=True)
        built = {arch: _or_fault(Built, build, problem, source, arch) for arch in ARCHITECTURES}
        found = _or_fault(Checked, check, problem, source, checks, expected)
        first = first or built[ARCHITECTURES[0]]
        rows.append({
            "name": source.name, "of": source.of,
            "sm": {f"sm_{arch}": x.model_dump(mode="json", exclude={"compiled"}) for arch, x in built.items()},
            "checked": found.model_dump(mode="json"),
            "time_us": times_us(problem, first, built[ARCHITECTURES[0]]),
        })  # fmt: skip
    h200 = gpu_of(ARCHITECTURES[0])
    floors = {w.name: floor_bytes(problem, w) for w in problem.workloads.timings}
    return {
        "problem": problem.name,
        "rows": rows,
        "checks": [x.name for x in checks],
        "ieee": expected.ieee,
        "floor_bytes": floors | {x.name: floor_bytes(problem, x) for x in checks},
        "floor_us": {name: floor_us(h200, size) for name, size in floors.items()} if h200 else {},
    }


def _or_fault(kind: Any, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except FileNotFoundError as error:
        return kind(fault=f"not run: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    chosen = parser.parse_args()
    facts = environment(ARCHITECTURES[0]).facts
    found = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{os.cpu_count()} cores of {cpu_model()}, {platform.machine()}, "
        + (f"GPU {gpu()}" if gpu() else "no GPU"),
        "versions": {name: facts[name] for name in ("triton", "ptxas", "torch", "python")},
        "bytes_at": BYTES_AT,
        "problems": [measure(load_problem(name)) for name in CHECKS],
    }
    text = page(found)
    print(text)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")
    if chosen.page:
        chosen.page.write_text(text)


if __name__ == "__main__":
    main()
