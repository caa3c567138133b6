"""Is the kernel faster? Every shape is compared by itself, and worse on none; better on one at least, or where the run
has a production mix, better in that.
"""

from tasks.drift import drift
from tasks.judgement import Criteria, Judgement
from tasks.noise import Noise
from tasks.paired import Comparison, against_gain, against_veto, compare, mean_of, percent
from tasks.records import Arm, Block, Evidence, Finding, LocusKind, Outcome, Record
from tasks.service_trust import level

TIME, ALPHA = "time_us", 0.05
MIX = "production mix"  # CPU time of a step: each timing by its share of the production steps
GAIN, LOSS = "microbench.smallest_effect_pct", "microbench.max_regression_pct"
WORKING_SET = "working_set_bytes"


class Effect(Record):
    """What the pairs say: an outcome, the key of the criterion that decided, and every comparison made."""

    outcome: Outcome
    key: str
    reason: str
    compared: tuple[Comparison, ...]


def judge_microbench(evidence: Evidence, criteria: Criteria, answers: bool) -> Judgement:
    """PASSED, REJECTED or INCONCLUSIVE over all shapes; errors are shared out among them."""
    if not _workloads(evidence.blocks):
        return Judgement.broken("microbench: no time was observed")
    found = effect(evidence.blocks, criteria, evidence.noise)
    moved = _drift(evidence.blocks)
    if moved is not None and found.outcome is not Outcome.REJECTED:
        return Judgement.inconclusive(f"microbench: both arms drift by {percent(moved):+.0f} % over the run")
    return Judgement(
        outcome=found.outcome if answers or found.outcome is not Outcome.PASSED else None,
        reason=f"microbench: {found.reason}{_shown(found.compared)}",
        criterion=criteria.cite(found.key),
        intervals=tuple(c.interval for c in found.compared if c.interval is not None),
        findings=tuple(_finding(evidence, workload) for workload in _workloads(evidence.blocks)),
    )


def effect(blocks: tuple[Block, ...], criteria: Criteria, noise: Noise | None) -> Effect:
    """Gain and losses against their limits, under the noise that was measured first, if any."""
    workloads = _workloads(blocks)
    wanted = [MIX] if MIX in workloads else workloads
    watched = [workload for workload in workloads if workload != MIX]
    shapes = {x: _compare(blocks, x, ALPHA / len(watched), noise) for x in watched}
    compared = {x: _compare(blocks, x, ALPHA, noise) for x in wanted} if wanted == [MIX] else shapes
    gains = {
        x: against_gain(c.interval, criteria.limit(GAIN), lower_is_better=True) for x, c in compared.items()
    }  # fmt: skip
    losses = {x: against_veto(c.interval, criteria.limit(LOSS), lower_is_better=True) for x, c in shapes.items()}
    slower = [workload for workload, outcome in losses.items() if outcome is Outcome.REJECTED]
    if slower:
        outcome, key, reason = Outcome.REJECTED, LOSS, f"slower at {', '.join(slower)}"
    elif set(gains.values()) == {Outcome.REJECTED}:
        told = f"not faster in the {MIX}" if wanted == [MIX] else "faster on no shape"
        outcome, key, reason = Outcome.REJECTED, GAIN, f"{told} by the smallest effect of interest"
    elif Outcome.PASSED in gains.values() and set(losses.values()) == {Outcome.PASSED}:
        faster = [workload for workload, found in gains.items() if found is Outcome.PASSED]
        outcome, key, reason = (
            Outcome.PASSED,
            GAIN,
            f"faster {'in the' if wanted == [MIX] else 'at'} {', '.join(faster)}, slower on no shape",
        )
    else:
        outcome, key, reason = Outcome.INCONCLUSIVE, GAIN, "the intervals do not decide"
    return Effect(outcome=outcome, key=key, reason=reason, compared=tuple({**compared, **shapes}.values()))


def is_decided(blocks: tuple[Block, ...], criteria: Criteria, noise: Noise | None) -> bool:
    """Whether these pairs force a verdict, so that more of them would be a waste. Looking often is allowed."""
    return effect(blocks, criteria, noise).outcome is not Outcome.INCONCLUSIVE


def _shown(compared: tuple[Comparison, ...]) -> str:
    """The interval of the production mix, where there is one."""
    found = next((c.interval for c in compared if c.workload == MIX and c.interval is not None), None)
    if found is None:
        return ""
    return (
        f"; {found.observable} {found.estimate:+.1f} % [{found.low:+.1f}, {found.high:+.1f}] over {found.blocks} pairs"
    )


def _compare(blocks: tuple[Block, ...], workload: str, alpha: float, noise: Noise | None) -> Comparison:
    return compare(blocks, TIME, workload, alpha, None if noise is None else noise.scale(workload))


def _workloads(blocks: tuple[Block, ...]) -> list[str]:
    return list(dict.fromkeys(block.workload for block in blocks if block.observable == TIME))


def _drift(blocks: tuple[Block, ...]) -> float | None:
    """In log units; a machine that does not stand still, or a candidate that does less and less."""
    return drift(level(sorted((b for b in blocks if b.workload == MIX), key=lambda b: b.order)))


def _finding(evidence: Evidence, workload: str) -> Finding:
    blocks = tuple(block for block in evidence.blocks if block.workload == workload)
    before, after = (mean_of(blocks, TIME, arm) for arm in (Arm.INCUMBENT, Arm.CANDIDATE))
    size, on_cpu = mean_of(blocks, WORKING_SET, Arm.INCUMBENT), evidence.environment.facts.get("device") == "cpu"
    told = ["mean over blocks; the interval of the paired ratio decides"]
    told += [_fits(size, evidence.environment.facts)] if size is not None else []
    told += ["CPU time of one thread, never evidence about a GPU"] if on_cpu else []
    return Finding.at(LocusKind.INPUT_CONDITION, workload, TIME, "us", before, after, "; ".join(told))


def _fits(size: float, facts: dict[str, str]) -> str:
    """The smallest cache that holds the working set, by the sizes that the kernel tells (`1024K`)."""
    shown = f"working set {size / 2**20:.1f} MiB"
    for cache in sorted(name for name in facts if name.startswith("cache_l")):
        if facts[cache].endswith("K") and size <= 1024 * int(facts[cache][:-1]):
            return f"{shown}, fits the {cache.removeprefix('cache_').upper()} of {facts[cache]}"
    return f"{shown}, fits no cache"
