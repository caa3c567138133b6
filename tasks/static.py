"""The `static` rung: how much work the compiler emits for each production shape. Counts only; it says nothing of speed.

A total is the count of one warp x warps x blocks of a cluster x programs, summed over the launches of a step. It is None
where a kernel has a loop: then the code does not tell how often an instruction runs.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from serving.errors import Broken
from tasks.artifacts import keep_json
from tasks.build import BOTH, built_arms
from tasks.compiled import Compiled, Launch
from tasks.problem import Problem
from tasks.records import Arm, Block, Build, Evidence, KernelCandidate, Rung
from tasks.sass import Code, Unreadable, read_code

# Per SM, the same for sm_90 and sm_100.
MAX_WARPS = 64
MAX_PROGRAMS = 32
REGISTERS = 65536
REGISTER_GRANULE = 8
SHARED_BYTES = 233472
RESERVED_SHARED_BYTES = 1024
DISASSEMBLERS = 4

Codes = dict[str, Code]


def measure_static(
    problem: Problem, candidate: KernelCandidate, build: Build, *, arms: Sequence[Arm] = BOTH
) -> Evidence:
    """Counts per arm, timing workload and kernel. Raises Broken for faults of ours and of the incumbent."""
    started = time.monotonic()
    compiled = built_arms(problem, candidate, build, arms)
    blocks: list[Block] = []
    table: dict[str, Any] = {}
    codes: dict[Arm, Codes] = {}
    fault: str | None = None
    for arm in arms:
        try:
            codes[arm] = _read_all(problem, compiled[arm])
        except Unreadable as error:
            if arm is Arm.INCUMBENT:
                raise Broken(
                    f"the incumbent's machine code cannot be read: {error}", "check the Triton version"
                ) from error
            fault = f"its machine code cannot be read: {error}"
            continue
        for workload in problem.workloads.timings:
            blocks += _blocks(arm, workload.name, compiled[arm].workloads[workload.name], codes[arm], len(blocks))
        table[arm] = _table(problem, compiled[arm], codes[arm])
    if set(codes) == set(BOTH):
        blocks += _changes(problem, compiled, codes, len(blocks))
    return Evidence(
        subject=build.hypothesis_id,
        rung=Rung.STATIC,
        blocks=tuple(blocks),
        environment=build.environment,
        evaluator_digest=problem.evaluator_digest,
        files=(keep_json(table),),
        wall_s=time.monotonic() - started,
        candidate_fault=fault,
    )


def machine_code(problem: Problem, compiled: Compiled, codes: Codes) -> dict[str, list[object]]:
    """What runs, per timing workload: `.text` digest, grid, warps and shared memory of each launch, in order."""
    return {
        workload.name: [
            [codes[x.cubin].text_sha256, list(x.grid), x.num_warps, x.num_ctas, x.shared_bytes]
            for x in compiled.workloads[workload.name]
        ]
        for workload in problem.workloads.timings
    }


def programs_per_sm(launch: Launch, code: Code) -> int:
    """How many programs fit on one SM: by warps, registers and shared memory. 0 if not even one does."""
    registers = -(-code.registers // REGISTER_GRANULE) * REGISTER_GRANULE * 32 * launch.num_warps
    shared = max(launch.shared_bytes, code.static_shared_bytes) + RESERVED_SHARED_BYTES
    return min(MAX_PROGRAMS, MAX_WARPS // launch.num_warps, REGISTERS // max(1, registers), SHARED_BYTES // shared)


def _read_all(problem: Problem, compiled: Compiled) -> Codes:
    """The code of every cubin that a timing workload launches, by cubin digest."""
    launches = {x.cubin: x for workload in problem.workloads.timings for x in compiled.workloads[workload.name]}
    with ThreadPoolExecutor(max_workers=DISASSEMBLERS) as pool:
        codes = pool.map(lambda launch: read_code(compiled.cubin(launch)), launches.values())
        return dict(zip(launches, codes, strict=True))


def _blocks(arm: Arm, workload: str, launches: Sequence[Launch], codes: Codes, first: int) -> list[Block]:
    """All observables of one arm and workload: of each kernel, then of the whole step."""
    found: list[Block] = []

    def note(observable: str, unit: str, value: float | None, part: str | None, reason: str | None = None) -> None:
        order = first + len(found)
        block = Block(
            arm=arm,
            observable=observable,
            unit=unit,
            workload=workload,
            value=value,
            order=order,
            part=part,
            reason=reason,
        )
        found.append(block)

    kernels = list(dict.fromkeys(launch.kernel for launch in launches))
    for kernel in kernels:
        mine = [launch for launch in launches if launch.kernel == kernel]
        _note_work(note, mine, codes, kernel)
        note("registers", "1", max(codes[x.cubin].registers for x in mine), kernel)
        note("spill_bytes", "B", max(codes[x.cubin].spill_bytes for x in mine), kernel)
        note("programs", "1", max(x.programs for x in mine), kernel)
        note("programs_per_sm", "1", min(programs_per_sm(x, codes[x.cubin]) for x in mine), kernel)
    _note_work(note, launches, codes, None)
    note("programs", "1", max(x.programs for x in launches), None)
    note("launches", "1", len(launches), None)
    _note_width(note, launches, codes)
    return found


def _mufu(code: Code) -> int:
    return sum(code.mufu.values())


def _instructions(code: Code) -> int:
    return code.instructions


def _note_work(note: Any, launches: Sequence[Launch], codes: Codes, part: str | None) -> None:
    looping = [x.kernel for x in launches if codes[x.cubin].loops]
    reason = f"kernel `{looping[0]}` has a loop: its code does not tell how often it runs" if looping else None
    for observable, per_warp in (("warp_instructions", _instructions), ("mufu", _mufu)):
        total = sum(per_warp(codes[x.cubin]) * x.warps for x in launches)
        note(observable, "1", None if looping else total, part, reason)


def _note_width(note: Any, launches: Sequence[Launch], codes: Codes) -> None:
    weight = [(codes[x.cubin], x.warps) for x in launches]
    total = sum(code.global_bytes * n for code, n in weight)
    if any(code.bulk_copies for code, _ in weight):
        note("wide_share", "1", None, None, "bulk copies have no width in the code")
    elif total == 0:
        note("wide_share", "1", None, None, "no global loads or stores")
    else:
        note("wide_share", "1", sum(code.global_wide_bytes * n for code, n in weight) / total, None)


def _changes(problem: Problem, compiled: dict[Arm, Compiled], codes: dict[Arm, Codes], first: int) -> list[Block]:
    """1 where the candidate runs other machine code, or another grid, than the incumbent; else 0."""
    ours, theirs = (machine_code(problem, compiled[arm], codes[arm]) for arm in BOTH)
    return [
        Block(
            arm=Arm.CANDIDATE,
            observable="code_changed",
            unit="1",
            workload=name,
            value=float(ours[name] != theirs[name]),
            order=first + i,
        )
        for i, name in enumerate(ours)
    ]


def _table(problem: Problem, compiled: Compiled, codes: Codes) -> dict[str, Any]:
    """Everything known of each kernel, for the artifact file."""
    return {
        "codes": {name: code.model_dump(mode="json") for name, code in codes.items()},
        "launches": {
            w.name: [x.model_dump(mode="json") for x in compiled.workloads[w.name]] for w in problem.workloads.timings
        },
    }
