"""The blocks of static evidence: what is noted of one arm at one production shape, on one architecture."""

from collections.abc import Callable, Sequence

from tasks.branch_weights import Shares, weighted
from tasks.compiled import Launch
from tasks.gpus import Gpu, Occupancy, occupancy, waves
from tasks.line_axes import Line
from tasks.records import Arm, Block, Record
from tasks.repetition import SMALLEST_SHARE, repetitions
from tasks.sass import Code

Codes = dict[str, Code]
UNWEIGHTED = "warp_instructions_unweighted"  # of the step alone


class Shape(Record):
    """What one arm launches at one workload. `lines` and `shares` by kernel; `arch` None is the primary one's."""

    arm: Arm
    workload: str
    launches: tuple[Launch, ...]
    arch: str | None
    gpu: Gpu | None
    lines: dict[str, dict[int, Line]]
    shares: dict[str, Shares]


class Notes:
    """Blocks of one shape, numbered on from `first`."""

    def __init__(self, shape: Shape, codes: Codes, first: int) -> None:
        self.shape, self.codes, self.first = shape, codes, first
        self.blocks: list[Block] = []

    def note(
        self, observable: str, value: float | None, part: str | None = None, unit: str = "1", reason: str | None = None
    ) -> None:
        block = Block(
            arm=self.shape.arm, workload=self.shape.workload, arch=self.shape.arch, observable=observable, unit=unit,
            value=value, part=part, reason=reason, order=self.first + len(self.blocks),
        )  # fmt: skip
        self.blocks.append(block)

    def code(self, launch: Launch) -> Code:
        return self.codes[launch.cubin]


def static_blocks(shape: Shape, codes: Codes, first: int) -> list[Block]:
    """All observables of each kernel, then of the whole step. Those that no architecture changes stand at the primary."""
    notes = Notes(shape, codes, first)
    for kernel in dict.fromkeys(launch.kernel for launch in shape.launches):
        _of_kernel(notes, [x for x in shape.launches if x.kernel == kernel], kernel)
    _work(notes, shape.launches, None)
    _width(notes)
    if shape.arch is None:
        notes.note("programs", max(x.programs for x in shape.launches))
        notes.note("launches", len(shape.launches))
        _repeated(notes)
    return notes.blocks


def occupancy_of(launch: Launch, code: Code) -> Occupancy:
    return occupancy(launch.num_warps, code.registers, max(launch.shared_bytes, code.static_shared_bytes))


def _of_kernel(notes: Notes, launches: Sequence[Launch], kernel: str) -> None:
    _work(notes, launches, kernel)
    fits = [occupancy_of(x, notes.code(x)).programs for x in launches]
    notes.note("registers", max(notes.code(x).registers for x in launches), kernel)
    notes.note("spill_bytes", max(notes.code(x).spill_bytes for x in launches), kernel, "B")
    if notes.shape.arch is None:
        notes.note("shared_bytes", max(x.shared_bytes for x in launches), kernel, "B")
        notes.note("programs", max(x.programs for x in launches), kernel)
    notes.note("programs_per_sm", min(fits), kernel)
    gpu = notes.shape.gpu
    if gpu is not None:
        filled = [waves(gpu, x.programs * x.num_ctas, n) for x, n in zip(launches, fits, strict=True)]
        known = [x for x in filled if x is not None]
        lacking = None if len(known) == len(filled) else "a program does not fit on an SM"
        notes.note(f"waves_{gpu.name.lower()}", None if lacking else max(known), kernel, reason=lacking)


def _instructions(code: Code, shares: Shares) -> float:
    return weighted(code, shares, lambda work: work.instructions)


def _unweighted(code: Code, shares: Shares) -> float:
    return code.instructions


def _mufu(code: Code, shares: Shares) -> float:
    return weighted(code, shares, lambda work: work.mufu)


COUNTS: dict[str, Callable[[Code, Shares], float]] = {
    "warp_instructions": _instructions,
    "mufu": _mufu,
    UNWEIGHTED: _unweighted,
}


def _work(notes: Notes, launches: Sequence[Launch], part: str | None) -> None:
    looping = [x.kernel for x in launches if notes.code(x).loops]
    reason = f"kernel `{looping[0]}` has a loop: its code does not tell how often it runs" if looping else None
    for observable, per_warp in COUNTS.items():
        if observable == UNWEIGHTED and part is not None:
            continue
        total = sum(per_warp(notes.code(x), notes.shape.shares.get(x.kernel, {})) * x.warps for x in launches)
        notes.note(observable, None if looping else total, part, reason=reason)


def _width(notes: Notes) -> None:
    weight = [(notes.code(x), x.warps) for x in notes.shape.launches]
    total = sum(code.global_bytes * n for code, n in weight)
    if any(code.bulk_copies for code, _ in weight):
        notes.note("wide_share", None, reason="bulk copies have no width in the code")
    elif total == 0:
        notes.note("wide_share", None, reason="no global loads or stores")
    else:
        notes.note("wide_share", sum(code.global_wide_bytes * n for code, n in weight) / total)


def _repeated(notes: Notes) -> None:
    """Of each axis along which work repeats, how often and how much; of the step, the most of either."""
    shape = notes.shape
    least = SMALLEST_SHARE * sum(notes.code(x).instructions * x.warps for x in shape.launches)
    every = [y for x in shape.launches for y in repetitions(x, notes.code(x), shape.lines.get(x.kernel, {}))]
    found = [x for x in every if x.warp_instructions >= least]
    looping = [x.kernel for x in shape.launches if notes.code(x).loops]
    reason = f"kernel `{looping[0]}` has a loop" if looping else None
    for part, of in [*((x.name, [x]) for x in found), (None, found)]:
        work = max((x.warp_instructions for x in of), default=0)
        mufu = max((x.mufu for x in of), default=0)
        notes.note("repetitions", max((x.times for x in of), default=1), part)
        notes.note("repeated_warp_instructions", None if reason else work, part, reason=reason)
        notes.note("repeated_mufu", None if reason else mufu, part, reason=reason)
