"""The `static` rung: how much work the compiler emits for each production shape. Counts only; it says nothing of speed.

A total is the count of one warp x warps x blocks of a cluster x programs, summed over the launches of a step. It is None
where a kernel has a loop: then the code does not tell how often an instruction runs. Code behind a branch counts as often
as its lines ran in the interpreter, where the numerics rung ran before. The verdict rests on the architecture of the
build; the others are looked at with the same gates, and never compared with it.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from serving.engine_env import version_in_engine
from serving.errors import Broken
from tasks.artifacts import keep_json
from tasks.build import ARCHITECTURES, BOTH, built_arms, compile_arms
from tasks.compiled import Compiled
from tasks.disassembly import Unreadable
from tasks.gpus import gpu_of
from tasks.interpreted_counts import bytes_moved, line_shares
from tasks.judge_static import ENGINE_TRITON, NO_TRITON
from tasks.line_axes import Line, lines_of
from tasks.problem import Problem
from tasks.recorded import text_of
from tasks.records import Arm, Block, Build, Environment, Evidence, KernelCandidate, Record, Rung
from tasks.sass import Code, read_code
from tasks.static_blocks import Codes, Shape, occupancy_of, static_blocks
from tasks.toolchain import environment

DISASSEMBLERS = 4


class Reading(Record):
    """The machine code of one arm on one architecture. The problem has the sizes that the arm chose."""

    problem: Problem
    arm: Arm
    arch: int
    compiled: Compiled
    codes: Codes


def measure_static(
    problem: Problem,
    candidate: KernelCandidate,
    build: Build,
    *,
    arms: Sequence[Arm] = BOTH,
    interpreted: Evidence | None = None,
) -> Evidence:
    """Counts per arm, architecture, timing workload and kernel. `interpreted`: what the numerics rung saw, if it ran.

    Raises Broken for faults of ours and of the incumbent.
    """
    started = time.monotonic()
    primary = arch_of(build.environment)
    compiled = {primary: built_arms(problem, candidate, build, arms)}
    facts = {arch: environment(arch) for arch in ARCHITECTURES if arch != primary}
    compiled |= {arch: compile_arms(problem, candidate, facts[arch], arms) for arch in facts}
    sources = {Arm.INCUMBENT: problem.incumbent, Arm.CANDIDATE: candidate}
    with ThreadPoolExecutor(max_workers=DISASSEMBLERS) as pool:
        jobs = [
            pool.submit(_read, problem, sources[arm], arm, arch, built[arm])
            for arch, built in compiled.items()
            for arm in arms
        ]
        found = [job.result() for job in jobs]
    readings = [x for x in found if isinstance(x, Reading)]
    faults = [x for x in found if isinstance(x, str)]
    blocks: list[Block] = []
    for reading in readings:
        blocks += _blocks(reading, interpreted, reading.arch == primary, len(blocks))
    blocks += _changes([x for x in readings if x.arch == primary], len(blocks))
    tables = [{"arch": f"sm_{a}"} | {x.arm: _table(x) for x in readings if x.arch == a} for a in compiled]
    return Evidence(
        subject=build.hypothesis_id,
        rung=Rung.STATIC,
        blocks=tuple(blocks),
        environment=_facts(problem, build.environment, facts),
        evaluator_digest=problem.evaluator_digest,
        files=tuple(keep_json(table) for table in tables),
        wall_s=time.monotonic() - started,
        candidate_fault=faults[0] if faults else None,
    )


def arch_of(environment: Environment) -> int:
    return int(environment.facts["arch"].removeprefix("sm_"))


def _facts(problem: Problem, built: Environment, others: dict[int, Environment]) -> Environment:
    """The build's, the assembler of each further architecture, and the Triton of the engine that would run the kernel."""
    further = {f"ptxas_sm_{arch}": found.facts["ptxas"] for arch, found in others.items()}
    if problem.definition.splice is not None:
        further[ENGINE_TRITON] = version_in_engine("triton") or NO_TRITON
    return Environment(facts=built.facts | further)


def _read(problem: Problem, source: KernelCandidate, arm: Arm, arch: int, compiled: Compiled) -> Reading | str:
    """The code of every cubin that a timing workload launches, or a fault of the candidate."""
    if compiled.failure is not None:  # on a further architecture; the incumbent's is Broken already
        return f"does not build for sm_{arch}: {compiled.failure}"
    launches = {x.cubin: x for workload in problem.workloads.timings for x in compiled.workloads[workload.name]}
    try:
        codes = {name: read_code(compiled.cubin(launch)) for name, launch in launches.items()}
    except Unreadable as error:
        if arm is Arm.INCUMBENT:
            raise Broken(f"the incumbent's machine code cannot be read: {error}", "check the Triton version") from error
        return f"its machine code cannot be read: {error}"
    return Reading(problem=problem.tuned(source), arm=arm, arch=arch, compiled=compiled, codes=codes)


def _blocks(reading: Reading, interpreted: Evidence | None, primary: bool, first: int) -> list[Block]:
    """Every workload of one arm on one architecture; bytes do not depend on it and are noted once."""
    problem, compiled, arm = reading.problem, reading.compiled, reading.arm
    lines: dict[str, dict[int, Line]] = {}
    text = text_of(compiled.recording.functions)
    blocks: list[Block] = []
    for workload in problem.workloads.timings:
        launches = compiled.workloads[workload.name]
        lines |= {x.kernel: lines_of(text, x.kernel) for x in launches if x.kernel not in lines}
        shape = Shape(
            arm=arm, workload=workload.name, launches=launches, arch=None if primary else f"sm_{reading.arch}",
            gpu=gpu_of(reading.arch), lines=lines,
            shares=line_shares(problem, compiled, workload, arm, lines, interpreted),
        )  # fmt: skip
        blocks += static_blocks(shape, reading.codes, first + len(blocks))
        if primary:
            blocks += bytes_moved(problem, compiled, workload, arm, interpreted, first + len(blocks))
    return blocks


def machine_code(reading: Reading) -> dict[str, list[object]]:
    """What runs, per timing workload: `.text` digest, grid, warps and shared memory of each launch, in order."""
    return {
        workload.name: [
            [reading.codes[x.cubin].text_sha256, list(x.grid), x.num_warps, x.num_ctas, x.shared_bytes]
            for x in reading.compiled.workloads[workload.name]
        ]
        for workload in reading.problem.workloads.timings
    }


def _changes(readings: Sequence[Reading], first: int) -> list[Block]:
    """1 where the candidate runs other machine code, or another grid, than the incumbent; else 0. Needs both."""
    code = {x.arm: machine_code(x) for x in readings}
    if set(code) != set(BOTH):
        return []
    return [
        Block(
            arm=Arm.CANDIDATE,
            observable="code_changed",
            unit="1",
            workload=name,
            value=float(ours != code[Arm.CANDIDATE][name]),
            order=first + i,
        )
        for i, (name, ours) in enumerate(code[Arm.INCUMBENT].items())
    ]


def _table(reading: Reading) -> dict[str, Any]:
    """Everything known of each kernel, line and launch, for the artifact file."""
    codes = reading.codes
    return {
        "codes": {name: code.model_dump(mode="json") | {"lines": _lines(code)} for name, code in codes.items()},
        "launches": {
            w.name: [
                x.model_dump(mode="json") | {"occupancy": occupancy_of(x, codes[x.cubin]).model_dump(mode="json")}
                for x in reading.compiled.workloads[w.name]
            ]
            for w in reading.problem.workloads.timings
        },
    }


def _lines(code: Code) -> dict[int, Any]:
    return {line: work.model_dump(mode="json") for line, work in code.lines.items()}
