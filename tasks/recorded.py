"""Lets a candidate's `run` say what it would launch. Its process is trusted with nothing but that: what it says is then
compiled, interpreted and counted in processes that it never enters, so a false list of launches is judged as it stands.
"""

from collections.abc import Mapping
from typing import Any

from tasks.ending import Ending
from tasks.problem import Problem
from tasks.records import KernelCandidate, Record, Scalar
from tasks.staging import UntrustedResult, fault_of, staged
from tasks.twins import runs_of, shaped


class Recording(Record):
    """result.json of the record worker: the text of kernels, and by workload what is launched, in order.

    `skipped`: workloads with launch options that `run` does not have by name.
    """

    nonce: str
    fault: str | None
    functions: tuple[dict[str, Any], ...]
    calls: dict[str, tuple[dict[str, Any], ...]]
    skipped: tuple[str, ...] = ()


class Recorded(Record):
    """A recording, or what the candidate did wrong."""

    ending: Ending
    recording: Recording | None = None
    failure: str | None = None


def calls_of(problem: Problem, launch: Mapping[str, Scalar]) -> list[dict[str, Any]]:
    """How `run` is called: for each production shape, each check, and each twin of one, whose own `options` it may lack."""
    runs = [(shaped(x, run), run) for x in problem.workloads.checks for run in runs_of(x)]
    return [
        *({"workload": x.name, "arguments": problem.arguments_of(x), "launch": launch, "options": {}}
          for x in problem.workloads.timings),
        *({"workload": run.name, "arguments": problem.arguments_of(x), "launch": launch, "options": run.options}
          for x, run in runs),
    ]  # fmt: skip


def record(problem: Problem, candidate: KernelCandidate, arch: int) -> Recorded:
    """Call `run` as `calls_of` says. `problem` is tuned to the candidate. Raises Broken for faults of ours only."""
    limits, calls = problem.criteria.values.limits, calls_of(problem, problem.options_of(candidate))
    request = {"arch": arch, "entry": "run", "calls": calls}
    with staged({"candidate.py": candidate.source}, request) as stage:
        ending = stage.run("record.py", limits)
        fault = fault_of(ending, None, limits)
        try:
            recording = None if fault else stage.result(Recording)
            if recording is not None:
                fault = fault_of(ending, recording.fault, limits)
                wanted = {x["workload"] for x in calls if not (x["options"] and x["workload"] in recording.skipped)}
                if fault is None and set(recording.calls) != wanted:
                    fault = "the process did not describe the launches of every workload"
                idle = sorted(name for name, launches in recording.calls.items() if not launches)
                if fault is None and idle:
                    fault = f"it launches no kernel at {idle[0]}"
        except UntrustedResult as error:
            fault = str(error)
    return Recorded(ending=ending, failure=fault) if fault else Recorded(ending=ending, recording=recording)
