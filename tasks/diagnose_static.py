"""What counts of instructions, bytes and programs say of a kernel: the rules of `diagnose` that no clock is needed for."""

from functools import partial

from tasks.gpus import GPUS, H200, floor_us
from tasks.records import Arm, Evidence, Finding, LocusKind, Rung
from tasks.static_table import WORK, Table

INC, CAN = Arm.INCUMBENT, Arm.CANDIDATE
REPEATED = "repetitions"
# What a rule concludes: from a value of each arm, or without figures.
inferred = partial(Finding.at, status="inferred")


def repeated_work(evidence: Evidence) -> list[Finding]:
    """Lines that compute the same in several programs, with how many: once would do."""
    if evidence.rung is not Rung.STATIC:
        return []
    table, found = Table(evidence.blocks), []
    times = {arm: table.parts(arm, REPEATED, table.largest) for arm in (INC, CAN)}
    for part in dict.fromkeys([*times[INC], *times[CAN]]):
        # Where an arm has other repetitions or none, these lines are done once in it.
        before, after = (
            times[a].get(part, 1.0 if table.value(a, REPEATED, table.largest) else None) for a in (INC, CAN)
        )
        arm = INC if part in times[INC] else CAN
        work, mufu = (table.value(arm, f"repeated_{x}", table.largest, part) for x in (WORK, "mufu"))
        amount = (
            "" if work is None else f": {work:,.0f} warp instructions, {mufu:,.0f} of them MUFU, at {table.largest}"
        )
        implies = f"in the {arm} each of {times[arm][part]:.0f} programs computes the same there{amount}"
        ask = None if part not in times[CAN] else (
            "compute it once in a kernel of its own, or merge the tiles where the batch still fills the GPU; then ask "
            "`faster kernel`"
        )  # fmt: skip
        found.append(inferred(LocusKind.CODE_PATH, part, REPEATED, "1", before, after, implies, ask))
    return found


def memory_floor(evidence: Evidence) -> list[Finding]:
    """What must move at the largest shape, and the time below which that cannot be done. Never a claim of speed."""
    if evidence.rung is not Rung.STATIC:
        return []
    table = Table(evidence.blocks)
    moved = {arm: table.parts(arm, "unique_bytes", table.largest) for arm in (INC, CAN)}
    if not all(moved.values()):
        return []
    (counted, before), (_, after) = (next(iter(moved[arm].items())) for arm in (INC, CAN))
    floors = ", ".join(
        f"{floor_us(gpu, before):.3g} → {floor_us(gpu, after):.3g} us on {gpu.name} ({gpu.bandwidth_bytes_s / 1e12:g} TB/s)"
        for gpu in GPUS
    )
    asked = [sum(table.parts(arm, "requested_bytes", table.largest).values()) for arm in (INC, CAN)]
    implies = (
        f"estimate, no time was measured: at least {floors} at the vendor's bandwidth; {counted} in 32-byte sectors, scaled "
        f"by programs; programs ask for {asked[0] / before:.3g} and {asked[1] / after:.3g} times that"
    )
    return [inferred(LocusKind.INPUT_CONDITION, table.largest, "unique_bytes", "B", before, after, implies)]


def launches_and_parts(evidence: Evidence) -> list[Finding]:
    """How many launches a step has, and where the candidate's work is when it has several kernels."""
    if evidence.rung is not Rung.STATIC:
        return []
    table, found = Table(evidence.blocks), []
    before, after = (table.value(arm, "launches", table.largest) for arm in (INC, CAN))
    if before != after:
        cost = "a step has another number of launches; what one costs is not in instructions, and shows only where a GPU is"
        found.append(inferred(LocusKind.CODE_CHANGE, "launches of a step", "launches", "1", before, after, cost))
    ours, theirs = (table.parts(arm, WORK, table.largest) for arm in (INC, CAN))
    for kernel, count in theirs.items() if len(theirs) > 1 and any(theirs.values()) else ():
        share = f"{100 * count / sum(theirs.values()):.0f} % of the candidate's warp instructions at {table.largest}"
        found.append(inferred(LocusKind.KERNEL, kernel, WORK, "1", ours.get(kernel), count, share))
    return found


def idle_multiprocessors(evidence: Evidence) -> list[Finding]:
    """Shapes at which a change of the grid leaves SMs without a program."""
    if evidence.rung is not Rung.STATIC:
        return []
    table, found = Table(evidence.blocks), []
    for workload in table.workloads:
        before, after = (table.value(arm, "programs", workload) for arm in (INC, CAN))
        if before is None or after is None or after >= min(H200.sms, before):
            continue
        implies = f"{after:.0f} programs in the largest launch leave SMs of an H200 ({H200.sms}) idle"
        found.append(inferred(LocusKind.INPUT_CONDITION, workload, "programs", "1", before, after, implies))
    return found[:4]
