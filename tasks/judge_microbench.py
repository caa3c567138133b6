"""Is the kernel faster? Every shape is compared by itself: better on one at least, worse on none."""

from tasks.judgement import Criteria, Judgement
from tasks.paired import against_gain, against_veto, compare, mean_of
from tasks.records import Arm, Evidence, Finding, Locus, LocusKind, Outcome

TIME, ALPHA = "time_us", 0.05
GAIN, LOSS = "microbench.smallest_effect_pct", "microbench.max_regression_pct"


def judge_microbench(evidence: Evidence, criteria: Criteria, answers: bool) -> Judgement:
    """PASSED, REJECTED or INCONCLUSIVE over all shapes; errors are shared out among them."""
    workloads = list(dict.fromkeys(block.workload for block in evidence.blocks if block.observable == TIME))
    if not workloads:
        return Judgement.broken("microbench: no time was observed")
    alpha = ALPHA / len(workloads)
    compared = [compare(evidence.blocks, TIME, workload, alpha) for workload in workloads]
    gains = {c.workload: against_gain(c.interval, criteria.limit(GAIN), lower_is_better=True) for c in compared}
    losses = {c.workload: against_veto(c.interval, criteria.limit(LOSS), lower_is_better=True) for c in compared}
    slower = [workload for workload, outcome in losses.items() if outcome is Outcome.REJECTED]
    if slower:
        outcome, key, reason = Outcome.REJECTED, LOSS, f"slower at {', '.join(slower)}"
    elif set(gains.values()) == {Outcome.REJECTED}:
        outcome, key, reason = Outcome.REJECTED, GAIN, "faster on no shape by the smallest effect of interest"
    elif Outcome.PASSED in gains.values() and set(losses.values()) == {Outcome.PASSED}:
        faster = [workload for workload, found in gains.items() if found is Outcome.PASSED]
        outcome, key, reason = Outcome.PASSED, GAIN, f"faster at {', '.join(faster)}, slower on no shape"
    else:
        outcome, key, reason = Outcome.INCONCLUSIVE, GAIN, "the intervals do not decide"
    return Judgement(
        outcome=outcome if answers or outcome is not Outcome.PASSED else None,
        reason=f"microbench: {reason}",
        criterion=criteria.cite(key),
        intervals=tuple(c.interval for c in compared if c.interval is not None),
        findings=tuple(_finding(evidence, workload) for workload in workloads),
    )


def _finding(evidence: Evidence, workload: str) -> Finding:
    blocks = tuple(block for block in evidence.blocks if block.workload == workload)
    before, after = (mean_of(blocks, TIME, arm) for arm in (Arm.INCUMBENT, Arm.CANDIDATE))
    known = before is not None and after is not None
    return Finding(
        locus=Locus(kind=LocusKind.INPUT_CONDITION, name=workload),
        observable=TIME,
        unit="us",
        incumbent=before,
        candidate=after,
        delta=after - before if before is not None and after is not None else None,
        status="measured" if known else "unknown",
        implies="mean over blocks; the interval of the paired ratio decides",
    )
