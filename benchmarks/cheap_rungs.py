"""Seconds per candidate on the cheap rungs, in a warm process, and candidates per hour.

    .venv/bin/python -P benchmarks/cheap_rungs.py [--candidates N] [--json FILE]

Each candidate is new to the build cache (a comment makes its digest another one), so it is compiled in full, as in a campaign;
the incumbent comes from the cache. `cold` is the first candidate, with the incumbent compiled, too.
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

from tasks.build import build_kernel
from tasks.numerics import measure_numerics
from tasks.problem import load_problem
from tasks.records import KernelCandidate, digest
from tasks.static import measure_static


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--candidates", type=int, default=6)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["INFRA_AGENT_HOME"] = folder
        rows = [candidate_seconds(number) for number in range(chosen.candidates)]
    warm = rows[1:]
    middle = {name: median(row[name] for row in warm) for name in rows[0]}
    total = sum(middle.values())
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {len(warm)} warm candidates, median:"
    )
    for name, seconds in middle.items():
        print(f"  {name:<9} {seconds:6.2f} s   (cold {rows[0][name]:.2f} s)")
    print(f"  {'all':<9} {total:6.2f} s   {3600 / total:.0f} candidates per hour")
    print(
        f"  static for one architecture, cold: {rows[0]['build'] + rows[0]['static']:.2f} s (incumbent compiled beside it)"
    )
    if chosen.json:
        chosen.json.write_text(
            json.dumps({"warm_s": middle, "cold_s": rows[0], "per_hour": 3600 / total}, indent=2) + "\n"
        )


def candidate_seconds(number: int) -> dict[str, float]:
    """Wall seconds of build, static and numerics for one candidate that no cache knows."""
    problem = load_problem("kda_decode")
    source = (problem.folder / "hoist_gate.py").read_text() + f"\n# candidate {number}\n"
    candidate = KernelCandidate(source_name=f"candidate_{number}.py", source=source)
    marks = [time.perf_counter()]
    build = build_kernel(problem, candidate, digest(source))
    marks.append(time.perf_counter())
    measure_static(problem, candidate, build)
    marks.append(time.perf_counter())
    measure_numerics(problem, candidate, build)
    marks.append(time.perf_counter())
    return dict(zip(("build", "static", "numerics"), (b - a for a, b in pairwise(marks)), strict=True))


if __name__ == "__main__":
    main()
