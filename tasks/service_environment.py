"""What must be equal before two service measurements may be compared, and what made them."""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from serving.engine_env import REPOSITORY, engine
from serving.scenario import Scenario
from serving.stack import StackSpec
from tasks.records import digest

EVALUATOR = (REPOSITORY / "serving", *sorted(Path(__file__).parent.glob("service*.py")))


def environment(
    stack: StackSpec,
    scenario: Scenario,
    checkpoint_digest: str | None,
    resolved: Mapping[str, object],
    departures: Sequence[str] = (),
) -> dict[str, str]:
    """Facts as text. `resolved`: the incumbent's arguments as its server reports them, empty if it never ran.

    `departures`: what its processes compute otherwise than the model says.
    """
    return {
        **engine().versions,
        "cpu": _cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "kernel": platform.release(),
        "stack": stack.digest,
        "scenario": scenario.digest,
        "checkpoint": checkpoint_digest or "not read",
        "radix_cache": _switch(resolved, "disable_radix_cache", {True: "off", False: "on"}),
        "cache_before_block": scenario.traffic.prefix_cache,
        "speculation": str(resolved.get("speculative_algorithm")) if resolved else "not read",
        "simulated_acceptance": ",".join(sorted(k for k in os.environ if k.startswith("SGLANG_SIMULATE_ACC")))
        or "none",
        "device": str(resolved.get("device", "not read")),
        "departures": (", ".join(departures) or "none") if resolved else "not read",
    }


def evaluator_digest() -> str:
    """Of the Python sources that measure."""
    files = [p for root in EVALUATOR for p in ([root] if root.is_file() else sorted(root.rglob("*.py")))]
    return digest([[path.name, digest(path.read_bytes())] for path in files])


def _switch(resolved: Mapping[str, object], name: str, words: Mapping[bool, str]) -> str:
    value = resolved.get(name)
    return words[value] if isinstance(value, bool) else "not read"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
