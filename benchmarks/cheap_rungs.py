"""Seconds per candidate on the cheap rungs, in a warm process, and candidates per hour.

    .venv/bin/python -P benchmarks/cheap_rungs.py [--candidates N] [--json FILE]

Each candidate is new to the build cache (a comment makes its digest another one), so it is compiled in full, for every
architecture, as in a campaign; the incumbent comes from the cache. `cold` is the first candidate, with the incumbent
compiled, too. `check static` is what `infra-agent check static` does after its start-up, for the incumbent.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from tasks.build import ARCHITECTURES, build_kernel
from tasks.check import check
from tasks.numerics import measure_numerics
from tasks.problem import KERNELS, load_problem
from tasks.records import KernelCandidate, Rung, digest
from tasks.static import measure_static


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--candidates", type=int, default=6)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["INFRA_AGENT_HOME"] = folder
        checks = {name: check_seconds() for name in ("cold", "from cache")}
        rows = [candidate_seconds(number) for number in range(chosen.candidates)]
    load.append(os.getloadavg()[0])
    middle = {name: median(row[name] for row in rows[1:]) for name in rows[0]}
    total = sum(middle.values())
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {load[0]:.1f} before and {load[1]:.1f} after"
    architectures = ", ".join(f"sm_{arch}" for arch in ARCHITECTURES)
    print(f"{machine}; {architectures}; {len(rows) - 1} warm candidates, median:")
    for name, seconds in middle.items():
        print(f"  {name:<9} {seconds:6.2f} s   (cold {rows[0][name]:.2f} s)")
    print(f"  {'all':<9} {total:6.2f} s   {3600 / total:.0f} candidates per hour")
    for name, seconds in checks.items():
        print(f"  check static, {name}: {seconds:.2f} s for {len(ARCHITECTURES)} architectures")
    if chosen.json:
        found = {"warm_s": middle, "cold_s": rows[0], "per_hour": 3600 / total, "check_static_s": checks, "load": load}
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")


def candidate_seconds(number: int) -> dict[str, float]:
    """Wall seconds of build, numerics and static for one candidate that no cache knows."""
    problem = load_problem("kda_decode")
    source = (problem.folder / "hoist_gate.py").read_text() + f"\n# candidate {number}\n"
    candidate = KernelCandidate(source_name=f"candidate_{number}.py", source=source)
    marks = [time.perf_counter()]
    build = build_kernel(problem, candidate, digest(source))
    marks.append(time.perf_counter())
    numerics = measure_numerics(problem, candidate, build)
    marks.append(time.perf_counter())
    measure_static(problem, candidate, build, interpreted=numerics)
    marks.append(time.perf_counter())
    return dict(zip(("build", "numerics", "static"), (b - a for a, b in pairwise(marks)), strict=True))


def check_seconds() -> float:
    """Wall seconds of the static rung alone, with its build."""
    started = time.perf_counter()
    check(Rung.STATIC, KERNELS / "kda_decode" / "incumbent.py")
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
