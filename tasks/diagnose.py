"""Rules that turn evidence into findings: where an effect sits, what it implies, and what to try next.

Each rule is a function of one piece of evidence that people can read, and add to `RULES`. What a rule concludes from
figures is `inferred`; the figures themselves are findings of the judges, `measured`.
"""

from collections.abc import Callable

from tasks.decomposition import E2E, TTFT, decomposed, margins, plain, shares_text, signed
from tasks.diagnose_static import idle_multiprocessors, inferred, launches_and_parts, memory_floor, repeated_work
from tasks.paired import mean_of
from tasks.reconcile import reconcile, reconcile_service
from tasks.records import Arm, Evidence, Experiment, Finding, Interval, LocusKind

INC, CAN = Arm.INCUMBENT, Arm.CANDIDATE
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


def where_time_went(evidence: Evidence) -> list[Finding]:
    """A change of the client's TTFT or end-to-end time, told apart by the layers that it is the sum of.

    None where the change is small, or may be noise; and no layer is named whose own shift may be.
    """
    return [f for whole, name in ((TTFT, "TTFT"), (E2E, "end-to-end time")) for f in _where(evidence, whole, name)]


def _where(evidence: Evidence, whole: str, name: str) -> list[Finding]:
    found = decomposed(evidence.blocks, whole)
    before, after = (mean_of(evidence.blocks, whole, arm) for arm in (INC, CAN))
    if found is None or not before or after is None or abs(100 * found.change / before) < MOVED_PCT:
        return []
    margin = margins(evidence.blocks, whole, found)
    if abs(found.change) <= margin[whole]:
        return []
    moved = f"{signed(found.change, margin[whole])} ({100 * found.change / before:+.0f} %)"
    implies = f"{name} {moved}: {shares_text(found, margin)}"
    if found.largest is None:
        locus, ask = "unexplained", "measure what no layer counts, before anything is said of the cause"
        if found.missing:
            locus, ask = "not measured", f"have the stack expose {', '.join(plain(layer) for layer in found.missing)}"
    elif abs(shift := found.contributions[found.largest]) <= margin[found.largest]:
        locus, ask = "no layer alone", "send more pairs: what each layer adds may be noise, their sum is not"
    else:
        locus = plain(found.largest)
        ask = f"ask what `{locus}` waits for: it makes {100 * shift / found.change:.0f} % of the change"
    return [inferred(LocusKind.INTERVAL, locus, whole, "ms", before, after, implies, ask)]


def starved_transfer(evidence: Evidence) -> list[Finding]:
    """Hardly any KV page leaves before prefill ends: something keeps the transfer thread from running."""
    name = "pages_before_prefill_end_pct"
    before, after = (mean_of(evidence.blocks, name, arm) for arm in (INC, CAN))
    if after is None or after >= FEW_PAGES_PCT:
        return []
    implies = f"{after:.0f} % of transfer pages are done before prefill ends: something holds the GIL"
    return [
        inferred(LocusKind.THREAD, "transfer", name, "%", before, after, implies, "release the GIL around the wait")
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
        found.append(inferred(LocusKind.INTERVAL, f"clocks of {role}", name, "%", before, after, implies, ask))
    return found


def small_share(evidence: Evidence) -> list[Finding]:
    """A kernel that takes little of a step cannot change the service much."""
    share = mean_of(evidence.blocks, SHARE, INC)
    if share is None or share >= SMALL_SHARE_PCT:
        return []
    implies = f"the kernel takes {share:.1f} % of a step: even for nothing it would gain no more"
    ask = "choose a kernel with a larger share"
    return [inferred(LocusKind.KERNEL, "share of a step", SHARE, "%", share, None, implies, ask)]


def shown_by_digest(evidence: Evidence) -> list[Finding]:
    """Code that touches no function has no calls that could be counted: the file that was loaded is all that is known."""
    proofs = [proof.what for proof in evidence.engagement if proof.arm is CAN]
    files = [what.removeprefix("server.code.") for what in proofs if what.startswith("server.code.")]
    if not files or any(what.startswith("server.calls.") for what in proofs):
        return []
    implies = "engagement is by digest: the candidate loaded this file, and no call of what it changes was counted"
    return [inferred(LocusKind.CODE_CHANGE, file, "engagement", "1", None, None, implies) for file in files]


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
