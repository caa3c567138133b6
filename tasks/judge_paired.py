"""Is the candidate better where time was measured? Paired blocks of both arms, and an interval of their ratio.

The number of pairs is fixed before the run, so a t interval of the paired log-ratio is valid; nobody looks at it earlier.
"""

import math
from statistics import mean, stdev

from scipy.stats import t as student

from tasks.judgement import Criteria, Judgement
from tasks.records import Arm, Block, Evidence, Finding, Interval, Locus, LocusKind, Outcome

CONFIDENCE = 0.95
METHOD = "t interval of the paired log-ratio, pairs fixed in advance"


def change_interval(blocks: tuple[Block, ...], observable: str, workload: str) -> Interval | None:
    """Relative change of the candidate against the incumbent, in percent; None with fewer than two complete pairs."""
    logs = [math.log(theirs / ours) for ours, theirs in _pairs(blocks, observable, workload) if ours > 0 and theirs > 0]
    if len(logs) < 2:
        return None
    centre, half = mean(logs), student.ppf((1 + CONFIDENCE) / 2, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    low, middle, high = (100 * (math.exp(x) - 1) for x in (centre - half, centre, centre + half))
    return Interval(
        observable=observable,
        unit="%",
        workload=workload,
        estimate=middle,
        low=min(low, middle),
        high=max(high, middle),
        confidence=CONFIDENCE,
        blocks=len(logs),
        method=METHOD,
    )


def mean_of(blocks: tuple[Block, ...], observable: str, arm: Arm) -> float | None:
    """Mean of the known values of one arm, None without any."""
    values = [b.value for b in blocks if b.observable == observable and b.arm is arm and b.value is not None]
    return mean(values) if values else None


def finding_of(evidence: Evidence, observable: str, kind: LocusKind, name: str, implies: str) -> Finding | None:
    """Both arms' means of one observable, None when neither is known."""
    before, after = (mean_of(evidence.blocks, observable, arm) for arm in Arm)
    if before is None and after is None:
        return None
    unit = next(b.unit for b in evidence.blocks if b.observable == observable)
    return Finding(
        locus=Locus(kind=kind, name=name),
        observable=observable,
        unit=unit,
        incumbent=before,
        candidate=after,
        delta=None if before is None or after is None else after - before,
        status="measured",
        implies=implies,
    )


def judge_change(interval: Interval, wanted: float, lower_is_better: bool) -> Outcome:
    """PASSED: the whole interval is better by at least `wanted` percent. REJECTED: none of it is. Else INCONCLUSIVE."""
    gains = (-interval.high, -interval.low) if lower_is_better else (interval.low, interval.high)
    if gains[0] >= wanted:
        return Outcome.PASSED
    return Outcome.REJECTED if gains[1] < wanted else Outcome.INCONCLUSIVE


def judge_veto(interval: Interval, limit: float, lower_is_better: bool) -> Outcome:
    """PASSED: the whole interval loses at most `limit` percent. REJECTED: all of it loses more. Else INCONCLUSIVE."""
    losses = (interval.low, interval.high) if lower_is_better else (-interval.high, -interval.low)
    if losses[1] <= limit:
        return Outcome.PASSED
    return Outcome.REJECTED if losses[0] > limit else Outcome.INCONCLUSIVE


def judge_microbench(evidence: Evidence, criteria: Criteria, answers: bool) -> Judgement:
    """Every workload is judged: better on at least one by the smallest effect of interest, worse on none."""
    workloads = list(dict.fromkeys(block.workload for block in evidence.blocks))
    intervals = [i for w in workloads if (i := change_interval(evidence.blocks, "time_us", w)) is not None]
    if len(intervals) < len(workloads):
        return Judgement.broken("microbench: a workload has fewer than two pairs of timings")
    wanted, limit = criteria.limit("microbench.smallest_effect_pct"), criteria.limit("microbench.max_regression_pct")
    vetoes = {judge_veto(interval, limit, lower_is_better=True) for interval in intervals}
    gains = {judge_change(interval, wanted, lower_is_better=True) for interval in intervals}
    finding = finding_of(
        evidence, "time_us", LocusKind.KERNEL, "all workloads", "mean over workloads; see the intervals"
    )
    findings = (finding,) if finding else ()
    if Outcome.REJECTED in vetoes:
        worst = max(intervals, key=lambda i: i.low)
        outcome, key = Outcome.REJECTED, "microbench.max_regression_pct"
        reason = f"slower at {worst.workload}: {worst.estimate:+.1f} % [{worst.low:+.1f}, {worst.high:+.1f}]"
    elif gains == {Outcome.REJECTED}:
        outcome, key, reason = Outcome.REJECTED, "microbench.smallest_effect_pct", "not faster by the smallest effect"
    elif Outcome.PASSED in gains and vetoes == {Outcome.PASSED}:
        outcome, key, reason = Outcome.PASSED, "microbench.smallest_effect_pct", "faster, and slower on no workload"
    else:
        outcome, key, reason = Outcome.INCONCLUSIVE, "microbench.smallest_effect_pct", "the intervals do not decide"
    return Judgement(
        outcome=outcome if answers or outcome is not Outcome.PASSED else None,
        reason=f"microbench: {reason}",
        criterion=criteria.cite(key),
        intervals=tuple(intervals),
        findings=findings,
    )


def _pairs(blocks: tuple[Block, ...], observable: str, workload: str) -> list[tuple[float, float]]:
    """Values of the k-th block of each arm, in order; a pair with an unknown side is left out."""
    chosen = sorted((b for b in blocks if b.observable == observable and b.workload == workload), key=lambda b: b.order)
    arms = [[b.value for b in chosen if b.arm is arm] for arm in Arm]
    return [(a, b) for a, b in zip(*arms, strict=False) if a is not None and b is not None]
