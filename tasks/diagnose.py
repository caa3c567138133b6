"""Rules that turn evidence into findings: where an effect sits, what it implies, and what to try next.

Each rule is a function of one piece of evidence that people can read, and add to `RULES`. What a rule concludes from
figures is `inferred`; the figures themselves are findings of the judges, `measured`.
"""

from collections.abc import Callable

from tasks.decomposition import E2E, TTFT, decomposed, plain, shares_text
from tasks.gpus import GPUS, H200, floor_us
from tasks.paired import mean_of
from tasks.reconcile import reconcile, reconcile_service
from tasks.records import Arm, Evidence, Experiment, Finding, Interval, Locus, LocusKind, Rung
from tasks.static_table import WORK, Table

INC, CAN = Arm.INCUMBENT, Arm.CANDIDATE
REPEATED = "repetitions"
SHARE = "kernel_share_pct"
HELD_BACK = "gpu_held_back_pct"
FEW_PAGES_PCT, SMALL_SHARE_PCT, MOVED_PCT = 20.0, 5.0, 5.0


def diagnose(
    experiment: Experiment, intervals: tuple[Interval, ...], judged: tuple[Finding, ...]
) -> tuple[Finding, ...]:
    """Every rule over every piece of evidence, then how the prediction fared."""
    found = [f for evidence in experiment.evidence if evidence.blocks for rule in RULES for f in rule(evidence)]
    told = reconcile(experiment.hypothesis.prediction, intervals, judged)
    return (*found, *([told] if told else []), *_service_gain(experiment, intervals))


def _service_gain(experiment: Experiment, intervals: tuple[Interval, ...]) -> list[Finding]:
    """What a kernel's gain by itself said of the service, held against what the service did."""
    predicted = next((e.predicted for e in reversed(experiment.evidence) if e.predicted is not None), None)
    measured = [i for i in intervals if predicted is not None and i.observable == predicted.observable]
    return [reconcile_service(predicted, measured[0])] if predicted is not None and measured else []


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
        found.append(_finding(LocusKind.CODE_PATH, part, REPEATED, "1", before, after, implies, ask))
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
    return [_finding(LocusKind.INPUT_CONDITION, table.largest, "unique_bytes", "B", before, after, implies)]


def launches_and_parts(evidence: Evidence) -> list[Finding]:
    """How many launches a step has, and where the candidate's work is when it has several kernels."""
    if evidence.rung is not Rung.STATIC:
        return []
    table, found = Table(evidence.blocks), []
    before, after = (table.value(arm, "launches", table.largest) for arm in (INC, CAN))
    if before != after:
        cost = "a step has another number of launches; what one costs is not in instructions, and shows only where a GPU is"
        found.append(_finding(LocusKind.CODE_CHANGE, "launches of a step", "launches", "1", before, after, cost))
    ours, theirs = (table.parts(arm, WORK, table.largest) for arm in (INC, CAN))
    for kernel, count in theirs.items() if len(theirs) > 1 and any(theirs.values()) else ():
        share = f"{100 * count / sum(theirs.values()):.0f} % of the candidate's warp instructions at {table.largest}"
        found.append(_finding(LocusKind.KERNEL, kernel, WORK, "1", ours.get(kernel), count, share))
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
        found.append(_finding(LocusKind.INPUT_CONDITION, workload, "programs", "1", before, after, implies))
    return found[:4]


def where_time_went(evidence: Evidence) -> list[Finding]:
    """A change of the client's TTFT or end-to-end time, told apart by the layers that it is the sum of."""
    return [f for whole, name in ((TTFT, "TTFT"), (E2E, "end-to-end time")) for f in _where(evidence, whole, name)]


def _where(evidence: Evidence, whole: str, name: str) -> list[Finding]:
    found = decomposed(evidence.blocks, whole)
    before, after = (mean_of(evidence.blocks, whole, arm) for arm in (INC, CAN))
    if found is None or not before or after is None or abs(100 * found.change / before) < MOVED_PCT:
        return []
    implies = f"{name} {found.change:+.1f} ms ({100 * found.change / before:+.0f} %): {shares_text(found)}"
    if found.largest is None:
        locus, ask = "unexplained", "measure what no layer counts, before anything is said of the cause"
        if found.missing:
            locus, ask = "not measured", f"have the stack expose {', '.join(plain(layer) for layer in found.missing)}"
    else:
        locus, shift = plain(found.largest), found.contributions[found.largest]
        ask = f"ask what `{locus}` waits for: it makes {100 * shift / found.change:.0f} % of the change"
    return [_finding(LocusKind.INTERVAL, locus, whole, "ms", before, after, implies, ask)]


def starved_transfer(evidence: Evidence) -> list[Finding]:
    """Hardly any KV page leaves before prefill ends: something keeps the transfer thread from running."""
    name = "pages_before_prefill_end_pct"
    before, after = (mean_of(evidence.blocks, name, arm) for arm in (INC, CAN))
    if after is None or after >= FEW_PAGES_PCT:
        return []
    implies = f"{after:.0f} % of transfer pages are done before prefill ends: something holds the GIL"
    return [
        _finding(LocusKind.THREAD, "transfer", name, "%", before, after, implies, "release the GIL around the wait")
    ]


def held_back_clocks(evidence: Evidence) -> list[Finding]:
    """Heat or a power brake took clocks away from the GPUs of a role: its times are those of a GPU that was slowed down."""
    found = []
    for name in dict.fromkeys(b.observable for b in evidence.blocks if b.observable.endswith(f".{HELD_BACK}")):
        before, after = (mean_of(evidence.blocks, name, arm) for arm in (INC, CAN))
        if not before and not after:
            continue
        role = name.removesuffix(f".{HELD_BACK}")
        implies = "heat or a power brake held the clocks back: times are not those of the GPU at its own speed"
        ask = "cool the machine, look for `nvidia-smi -q -d PERFORMANCE`, and measure again"
        found.append(_finding(LocusKind.INTERVAL, f"clocks of {role}", name, "%", before, after, implies, ask))
    return found


def small_share(evidence: Evidence) -> list[Finding]:
    """A kernel that takes little of a step cannot change the service much."""
    share = mean_of(evidence.blocks, SHARE, INC)
    if share is None or share >= SMALL_SHARE_PCT:
        return []
    implies = f"the kernel takes {share:.1f} % of a step: even for nothing it would gain no more"
    ask = "choose a kernel with a larger share"
    return [_finding(LocusKind.KERNEL, "share of a step", SHARE, "%", share, None, implies, ask)]


def shown_by_digest(evidence: Evidence) -> list[Finding]:
    """Code that touches no function has no calls that could be counted: the file that was loaded is all that is known."""
    proofs = [proof.what for proof in evidence.engagement if proof.arm is CAN]
    files = [what.removeprefix("server.code.") for what in proofs if what.startswith("server.code.")]
    if not files or any(what.startswith("server.calls.") for what in proofs):
        return []
    implies = "engagement is by digest: the candidate loaded this file, and no call of what it changes was counted"
    return [_finding(LocusKind.CODE_CHANGE, file, "engagement", "1", None, None, implies) for file in files]


RULES: tuple[Callable[[Evidence], list[Finding]], ...] = (
    repeated_work,
    memory_floor,
    launches_and_parts,
    idle_multiprocessors,
    where_time_went,
    starved_transfer,
    held_back_clocks,
    small_share,
    shown_by_digest,
)


def _finding(
    kind: LocusKind, name: str, observable: str, unit: str, before: float | None, after: float | None, implies: str,
    next_test: str | None = None,
) -> Finding:  # fmt: skip
    return Finding(
        locus=Locus(kind=kind, name=name),
        observable=observable,
        unit=unit,
        incumbent=before,
        candidate=after,
        delta=None if before is None or after is None else after - before,
        status="inferred",
        implies=implies,
        next_test=next_test,
    )
