"""Paired comparison of two arms: pairs of blocks, the interval of their ratio, and what it says about a limit."""

import math
from statistics import fmean

from tasks.noise import SMALLEST_SCALE
from tasks.records import Arm, Block, Interval, Outcome, Record
from tasks.sequential import METHOD, bounds, robust_scale

SCALE_PAIRS = 3  # without an A/A run these first pairs give the scale, and do not count
LARGEST_LOG = 700.0


class Comparison(Record):
    """`interval` is None until there are enough pairs to say anything; `reason` then says what is missing."""

    observable: str
    workload: str
    interval: Interval | None
    reason: str = ""


def log_ratios(blocks: tuple[Block, ...], observable: str, workload: str) -> list[float]:
    """log(candidate / incumbent) of the k-th block of each arm, in order.

    Left out are pairs with an unknown or zero side, and those whose ratio is no positive finite number.
    """
    chosen = sorted((b for b in blocks if b.observable == observable and b.workload == workload), key=lambda b: b.order)
    ours, theirs = ([b.value for b in chosen if b.arm is arm] for arm in (Arm.INCUMBENT, Arm.CANDIDATE))
    ratios = [
        b / a
        for a, b in zip(ours, theirs, strict=False)
        if a is not None and b is not None and a > 0 and b > 0
    ]  # fmt: skip
    return [math.log(ratio) for ratio in ratios if 0 < ratio < math.inf]


def compare(
    blocks: tuple[Block, ...], observable: str, workload: str, alpha: float, scale: float | None = None
) -> Comparison:
    """Relative change of the candidate in percent with its interval at error `alpha`, valid at any number of pairs.

    `scale` is the A/A noise of a log-ratio on this machine, fixed before the run.
    """
    ratios = log_ratios(blocks, observable, workload)
    if scale is None:
        scale, ratios = robust_scale(ratios[:SCALE_PAIRS]) if ratios else 0.0, ratios[SCALE_PAIRS:]
    if len(ratios) < 2:
        return Comparison(observable=observable, workload=workload, interval=None, reason="fewer than two pairs count")
    found = bounds(ratios, max(scale, SMALLEST_SCALE), alpha)
    if found.low is None or found.high is None:
        reason = f"{len(ratios)} pairs are too few to say anything at {100 * (1 - alpha):g} %"
        return Comparison(observable=observable, workload=workload, interval=None, reason=reason)
    interval = Interval(
        observable=observable,
        unit="%",
        workload=workload,
        estimate=percent(found.estimate),
        low=percent(found.low),
        high=percent(found.high),
        confidence=1 - alpha,
        blocks=len(ratios),
        method=METHOD,
    )
    return Comparison(observable=observable, workload=workload, interval=interval)


def percent(log_ratio: float) -> float:
    """At most what a float holds: a bound may lie beyond every ratio that was seen."""
    return 100 * math.expm1(min(log_ratio, LARGEST_LOG))


def against_gain(interval: Interval | None, wanted: float, lower_is_better: bool) -> Outcome:
    """PASSED: all of the interval is better by at least `wanted` percent. REJECTED: none of it is. Else INCONCLUSIVE."""
    if interval is None:
        return Outcome.INCONCLUSIVE
    least, most = (-interval.high, -interval.low) if lower_is_better else (interval.low, interval.high)
    return Outcome.PASSED if least >= wanted else Outcome.REJECTED if most < wanted else Outcome.INCONCLUSIVE


def against_veto(interval: Interval | None, limit: float, lower_is_better: bool) -> Outcome:
    """PASSED: all of the interval loses at most `limit` percent. REJECTED: all of it loses more. Else INCONCLUSIVE."""
    if interval is None:
        return Outcome.INCONCLUSIVE
    least, most = (interval.low, interval.high) if lower_is_better else (-interval.high, -interval.low)
    return Outcome.PASSED if most <= limit else Outcome.REJECTED if least > limit else Outcome.INCONCLUSIVE


def mean_of(blocks: tuple[Block, ...], observable: str, arm: Arm) -> float | None:
    """Mean of the known values of one arm, None without any."""
    values = [b.value for b in blocks if b.observable == observable and b.arm is arm and b.value is not None]
    if not values:
        return None
    try:
        return fmean(values)
    except OverflowError:  # of the sum; the mean itself lies among the values
        return math.fsum(value / len(values) for value in values)
