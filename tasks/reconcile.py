"""Predictions are held against what was measured: of a hypothesis, and of a service gain from a local one."""

import math

from tasks.records import Finding, Interval, LocusKind, Prediction, ServiceGain

NEAR = 2.0  # a size within this factor of the prediction counts as hit where there is no interval


def predict_service(
    observable: str, local: Interval, share: tuple[float, float, float], rate: bool = False
) -> ServiceGain:
    """What a local change of time predicts for the service: T = 1 - s + s * r, for a measured share s and ratio r.

    `share`: low, estimate and high, from 0 to 1, of the time that the service metric covers. `rate`: the metric is work
    per time. Raises ValueError for shares out of order.
    """
    low, middle, high = share
    if not 0 <= low <= middle <= high <= 1:
        raise ValueError(f"shares must be ordered within 0 and 1, given {low}, {middle}, {high}")
    times = [middle * local.estimate, *(s * change for s in (low, high) for change in (local.low, local.high))]
    changes = [100 * (1 / (1 + t / 100) - 1) if t > -100 else math.inf for t in times] if rate else times
    return ServiceGain(
        observable=observable,
        estimate_pct=changes[0],
        low_pct=min(changes),
        high_pct=max(changes),
        timing=local.workload,
        alone_pct=(local.low, local.estimate, local.high),
        share_pct=(100 * low, 100 * middle, 100 * high),
    )


def reconcile_service(predicted: ServiceGain, measured: Interval) -> Finding:
    """A finding of its own when the two intervals do not meet; its likely loci are what the prediction leaves out."""
    met = predicted.low_pct <= measured.high and measured.low <= predicted.high_pct
    said = f"predicted {predicted.estimate_pct:+.1f} % [{predicted.low_pct:+.1f}, {predicted.high_pct:+.1f}]"
    seen = f"measured {measured.estimate:+.1f} % [{measured.low:+.1f}, {measured.high:+.1f}]"
    implies = f"{said}, {seen}: " + (
        "they agree" if met else "a miss: share, overlap or batch differ from the microbench"
    )
    ask = None if met else "compare the kernel's time in the service with the microbench's, and ask what else overlaps"
    return _finding("service prediction", measured.observable, predicted.estimate_pct, measured.estimate, implies, ask)


def reconcile(prediction: Prediction, intervals: tuple[Interval, ...], judged: tuple[Finding, ...]) -> Finding | None:
    """How the prediction of a hypothesis fared; None where its observable was not measured in percent."""
    if prediction.unit != "%":
        return None
    said = {"down": -prediction.size, "up": prediction.size, "same": 0.0}[prediction.direction]
    interval = next((i for i in intervals if i.observable == prediction.observable), None)
    wide = interval is not None and said != 0 and interval.low <= 0 <= interval.high
    if interval is not None:
        hit = interval.low <= said <= interval.high
        seen, measured = f"{interval.estimate:+.1f} % [{interval.low:+.1f}, {interval.high:+.1f}]", interval.estimate
    else:
        found = next(
            (f for f in judged if f.observable == prediction.observable and f.incumbent and f.delta is not None), None
        )
        if found is None or found.incumbent is None or found.delta is None:
            return None
        measured = 100 * found.delta / found.incumbent
        hit = said * measured > 0 and 1 / NEAR <= measured / said <= NEAR if said else measured == 0
        seen = f"{measured:+.1f} %"
    fared = "as predicted" if hit else "the prediction missed"
    told = "too wide to tell the prediction from no change" if hit and wide else fared
    implies = f"predicted {said:+g} %, measured {seen}: {told}"
    ask = None if hit else "ask what the mechanism leaves out before building on it"
    return _finding("prediction", prediction.observable, said, measured, implies, ask)


def _finding(name: str, observable: str, said: float, seen: float, implies: str, ask: str | None) -> Finding:
    """`incumbent` is the predicted change and `candidate` the measured one, in percent."""
    return Finding.at(LocusKind.CODE_CHANGE, name, observable, "%", said, seen, implies, ask, status="inferred")
