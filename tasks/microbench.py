"""The `microbench` rung: time both arms on a GPU, in pairs of random order, cold L2, raw samples only.

Without a GPU the rung is `not run`; a CPU never stands in for it. With one, a trusted process launches the cubins that
the sandbox compiled (tasks/trusted/replay.py): no line of a candidate runs where time is taken. NOT YET RUN ON A GPU:
it was written on a machine that has none, so the first run on one is itself a test.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from serving.errors import Broken
from serving.scratch import scratch
from tasks.build import BOTH, built_arms
from tasks.compiled import Compiled
from tasks.definition import Timing
from tasks.judge_numerics import limit_key
from tasks.numerics import seed_of
from tasks.problem import Problem
from tasks.records import Arm, Block, Build, Engagement, Environment, Evidence, KernelCandidate, Record, Rung, digest
from tasks.sass import text_sha256

REPLAY = Path(__file__).with_name("trusted") / "replay.py"
PAIRS = 40
# Larger than any L2 in use: 50 MB on an H200, 126 MB on a B200.
FLUSH_BYTES = 512 << 20
TIMEOUT_S = 540.0


class Sample(Record):
    workload: str
    arm: Arm
    time_us: float
    started_s: float


class Replayed(Record):
    """result.json of the replay: samples, and the errors of the last timed call of each arm and workload."""

    nonce: str
    samples: tuple[Sample, ...]
    errors: dict[Arm, dict[str, dict[str, float | None]]]
    loaded: dict[Arm, dict[str, str]]
    fault_of: Arm | None = None
    fault: str | None = None


def gpu() -> dict[str, str] | None:
    """Name, driver and MIG mode of the first GPU, or None without one."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,mig.mode.current", "--format=csv,noheader", "-i", "0"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    values = [value.strip() for value in done.stdout.split(",")]
    if done.returncode != 0 or len(values) != 3:
        return None
    return {"gpu": values[0], "gpu_driver": values[1], "gpu_mig": values[2]}


def measure_microbench(
    problem: Problem, candidate: KernelCandidate, build: Build, *, gate: str | None, arms: Sequence[Arm] = BOTH
) -> Evidence:
    """Samples of `time_us` per arm and timing workload. `gate` is the id of the numerics evidence. Raises Broken."""
    started = time.monotonic()
    seed = seed_of(candidate)
    device = gpu()
    facts = build.environment.facts | (device or {"gpu": "none"})
    replayed: Replayed | None = None
    if device is not None:
        if gate is None:
            raise Broken("a timing without its numerics evidence was asked for", "run the numerics rung first")
        compiled = built_arms(problem, candidate, build, arms)
        sources = {Arm.INCUMBENT: problem.incumbent, Arm.CANDIDATE: candidate}
        replayed = replay({arm: problem.tuned(sources[arm]) for arm in arms}, compiled, seed)
    return Evidence(
        subject=build.hypothesis_id,
        rung=Rung.MICROBENCH,
        blocks=_blocks(replayed) if replayed else (),
        engagement=_engagement(compiled, replayed) if replayed else (),
        environment=Environment(facts=facts),
        evaluator_digest=problem.evaluator_digest,
        seed=seed,
        wall_s=time.monotonic() - started,
        device_s=time.monotonic() - started if device else 0.0,
        not_run=None if device else "no GPU",
        candidate_fault=_fault(problem, replayed) if replayed else None,
        gate=gate if device else None,
    )


def replay(asked: dict[Arm, Problem], compiled: dict[Arm, Compiled], seed: int) -> Replayed:
    """Time all arms on the GPU, each on the sizes that it asked for. Raises Broken."""
    request = request_of(asked, compiled, seed)
    nonce = request["nonce"]
    with scratch() as folder:
        (folder / "request.json").write_text(json.dumps(request))
        try:
            done = subprocess.run(
                [sys.executable, "-I", REPLAY, folder],
                capture_output=True, text=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            result = Replayed.model_validate_json((folder / "result.json").read_bytes())
        except subprocess.TimeoutExpired as error:
            hint = "look at the GPU with nvidia-smi"
            raise Broken(f"the timing process did not end within {TIMEOUT_S:g} s", hint) from error
        except (OSError, ValidationError) as error:
            last = done.stderr.strip().splitlines()[-1:] or ["no output"]
            fault = f"the timing process failed with status {done.returncode}: {last[0]}"
            raise Broken(fault, "check that torch is built for CUDA and that the GPU is free") from error
    if result.nonce != nonce:
        raise Broken("the timing process answered another request", "run it again")
    if result.fault is not None and result.fault_of is not Arm.CANDIDATE:
        raise Broken(
            f"the incumbent or the timing process failed on the GPU: {result.fault}", "run the incumbent alone"
        )
    return result


def request_of(asked: dict[Arm, Problem], compiled: dict[Arm, Compiled], seed: int) -> dict[str, Any]:
    """What the timing process needs, as JSON. An arm may have sizes of its own, such as the length of a ring."""
    rng = random.Random(seed)
    shared = next(iter(asked.values()))
    return {
        "nonce": digest([seed, time.time_ns()]),
        "seed": seed,
        "flush_bytes": FLUSH_BYTES,
        "reference": shared.reference,
        "orders": {
            w.name: [rng.sample(list(asked), len(asked)) for _ in range(PAIRS)] for w in shared.workloads.timings
        },
        "arms": {
            arm: {
                "cubins": str(compiled[arm].folder / "cubins"),
                "workloads": {w.name: _workload(problem, w, compiled[arm]) for w in problem.workloads.timings},
            }
            for arm, problem in asked.items()
        },
    }


def _workload(problem: Problem, workload: Timing, compiled: Compiled) -> dict[str, Any]:
    return {
        **problem.for_reference(workload),
        "inputs": {},
        "steps": problem.cycle_of(workload),
        "arguments": problem.arguments_of(workload),
        "launches": [launch.model_dump(mode="json") for launch in compiled.workloads[workload.name]],
    }


def _blocks(replayed: Replayed) -> tuple[Block, ...]:
    return tuple(
        Block(
            arm=x.arm,
            observable="time_us",
            unit="µs",
            workload=x.workload,
            value=x.time_us,
            order=i,
            started_s=x.started_s,
        )
        for i, x in enumerate(replayed.samples)
    )


def _engagement(compiled: dict[Arm, Compiled], replayed: Replayed) -> tuple[Engagement, ...]:
    """The `.text` of each module that the driver was given."""
    found = []
    for arm, cubins in replayed.loaded.items():
        launches = {x.cubin: x for launched in compiled[arm].workloads.values() for x in launched}
        for cubin, seen in cubins.items():
            expected = text_sha256(compiled[arm].cubin(launches[cubin]))
            what = f"machine code of {launches[cubin].kernel} given to the driver"
            found.append(Engagement(arm=arm, what=what, expected=expected, seen=seen))
    return tuple(found)


def _fault(problem: Problem, replayed: Replayed) -> str | None:
    """A crash on the GPU, or wrong results of the very calls that were timed."""
    if replayed.fault is not None:
        return replayed.fault
    for name, errors in replayed.errors.get(Arm.CANDIDATE, {}).items():
        (workload,) = [w for w in problem.workloads.timings if w.name == name]
        for result in problem.results_of(workload):
            error, limit = errors[result.name], problem.criteria.limit(limit_key(result.dtype))
            if error is None or error > limit:
                shown = "not finite" if error is None else f"{error:.2g}"
                return f"wrong `{result.name}` at {name} on the GPU: error {shown}, limit {limit:.2g}"
    return None
