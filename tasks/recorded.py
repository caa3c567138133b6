"""Lets a candidate's `run` say what it would launch. Its process is trusted with nothing but that: what it says is then
compiled, interpreted and counted in processes that it never enters, so a false list of launches is judged as it stands.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from serving.home import home
from tasks.problem import Problem
from tasks.records import Environment, KernelCandidate, Record, Scalar, digest
from tasks.staging import UntrustedResult, fault_of, staged
from tasks.twins import runs_of, shaped

RECORDED_ARCH = 90  # what Triton's driver says that there is, where a candidate asks


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

    recording: Recording | None = None
    log: str = ""
    wall_s: float = 0.0
    failure: str | None = None


def text_of(functions: Sequence[Mapping[str, Any]]) -> str:
    """The kernels as they were handed over, each on its lines, with imports of what they use of Triton: the file may say
    something else. `functions` are those that were compiled. Empty where a name means two things.
    """
    lines = {n: line for x in functions for n, line in enumerate(x["text"].splitlines(), x["line"])}
    meanings: dict[str, str | None] = {}
    for name, meant in [(x["name"], None) for x in functions] + [y for x in functions for y in _language(x, functions)]:
        if meanings.setdefault(name, meant) != meant:
            return "\n"
    if len({x["name"] for x in functions}) < len(functions):
        return "\n"
    text = [lines.get(n, "") for n in range(1, max(lines, default=0) + 1)]
    return "\n".join([*text, *(x for x in meanings.values() if x)]) + "\n"


def _language(function: Mapping[str, Any], functions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str | None]]:
    """Each name that a function reads and that is no constant, with the import that it stands for."""
    for name, value in function["names"].items():
        match value:
            case {"module": module}:
                yield name, f"import {module} as {name}"
            case {"builtin": [module, what]}:
                yield name, f"from {module} import {what.split('.')[0]} as {name}"
            case {"function": place}:
                yield name, None if functions[place]["name"] == name else f"# {functions[place]['name']} as {name}"


def calls_of(problem: Problem, launch: Mapping[str, Scalar]) -> list[dict[str, Any]]:
    """How `run` is called: for each production shape, each check, and each twin of one, whose own `options` it may lack."""
    runs = [(shaped(x, run), run) for x in problem.workloads.checks for run in runs_of(x)]
    return [
        *({"workload": x.name, "arguments": problem.arguments_of(x), "launch": launch, "options": {}}
          for x in problem.workloads.timings),
        *({"workload": run.name, "arguments": problem.arguments_of(x), "launch": launch, "options": run.options}
          for x, run in runs),
    ]  # fmt: skip


def record(problem: Problem, candidate: KernelCandidate, environment: Environment) -> Recorded:
    """Call `run` as `calls_of` says, or find the recording in the cache: it serves every architecture.

    `problem` is tuned to the candidate. Raises Broken for faults of ours only.
    """
    facts = {name: environment.facts[name] for name in ("torch", "triton", "python")}
    key = digest([digest(candidate.source), dict(candidate.launch), problem.evaluator_digest, facts])
    folder = home() / "recordings"
    for kept in folder.glob(f"{key}.*.json"):
        content = kept.read_bytes()
        if kept.name == f"{key}.{digest(content)}.json":
            return Recorded(recording=Recording.model_validate_json(content))
    found = _record(problem, candidate)
    if found.recording is not None:
        folder.mkdir(exist_ok=True)
        content = found.recording.model_dump_json().encode()
        part = folder / f"{key}.{uuid4().hex}.part"
        part.write_bytes(content)
        part.replace(folder / f"{key}.{digest(content)}.json")
    return found


def _record(problem: Problem, candidate: KernelCandidate) -> Recorded:
    limits, calls = problem.criteria.values.limits, calls_of(problem, problem.options_of(candidate))
    request = {"arch": RECORDED_ARCH, "entry": "run", "calls": calls}
    with staged({"candidate.py": candidate.source}, request) as stage:
        ending = stage.run("record.py", limits)
        fault = fault_of(ending, None, limits)
        recording = None
        try:
            if fault is None:
                recording = stage.result(Recording)
                fault = fault_of(ending, recording.fault, limits) or _incomplete(recording, calls)
        except UntrustedResult as error:
            fault = str(error)
    found = None if fault else recording
    return Recorded(recording=found, log=ending.output_tail, wall_s=ending.wall_s, failure=fault)


def _incomplete(recording: Recording, calls: list[dict[str, Any]]) -> str | None:
    """What a recording lacks. Only runs with launch options of their own may be skipped: not every source has them."""
    wanted = {x["workload"] for x in calls if not (x["options"] and x["workload"] in recording.skipped)}
    if set(recording.calls) != wanted:
        return "the process did not describe the launches of every workload"
    idle = sorted(name for name, launches in recording.calls.items() if not launches)
    return f"it launches no kernel at {idle[0]}" if idle else None
