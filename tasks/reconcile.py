"""Predictions are held against what was measured: of a hypothesis, and of a service gain from a local one."""

from tasks.records import Finding, Interval, Locus, LocusKind, Prediction, Record

NEAR = 2.0  # a size within this factor of the prediction counts as hit where there is no interval


class ServiceGain(Record):
    """Predicted relative change of the service's time, in percent (negative is faster), from Amdahl's law."""

    estimate_pct: float
    low_pct: float
    high_pct: float


def predict_service(local: Interval, share_low: float, share: float, share_high: float) -> ServiceGain:
    """What a local change of time predicts for the service: T = 1 - s + s * r, for a measured share s and ratio r.

    Shares from 0 to 1, of the time that the service metric covers. Raises ValueError for shares out of order.
    """
    if not 0 <= share_low <= share <= share_high <= 1:
        raise ValueError(f"shares must be ordered within 0 and 1, given {share_low}, {share}, {share_high}")
    changes = [s * change for s in (share_low, share_high) for change in (local.low, local.high)]
    return ServiceGain(estimate_pct=share * local.estimate, low_pct=min(changes), high_pct=max(changes))


def reconcile_service(predicted: ServiceGain, measured: Interval) -> Finding:
    """A finding of its own when the two intervals do not meet; its likely loci are what the prediction leaves out."""
    met = predicted.low_pct <= measured.high and measured.low <= predicted.high_pct
    said = f"predicted {predicted.estimate_pct:+.1f} % [{predicted.low_pct:+.1f}, {predicted.high_pct:+.1f}]"
    seen = f"measured {measured.estimate:+.1f} % [{measured.low:+.1f}, {measured.high:+.1f}]"
    implies = f"{said}, {seen}: " + (
        "they agree" if met else "a miss: share, overlap or batch differ from the microbench"
    )
    ask = None if met else "measure the kernel's share under this traffic, and whether it overlaps with other work"
    return _finding("service prediction", measured.observable, predicted.estimate_pct, measured.estimate, implies, ask)


def reconcile(prediction: Prediction, intervals: tuple[Interval, ...], judged: tuple[Finding, ...]) -> Finding | None:
    """How the prediction of a hypothesis fared; None where its observable was not measured in percent."""
    if prediction.unit != "%":
        return None
    said = {"down": -prediction.size, "up": prediction.size, "same": 0.0}[prediction.direction]
    interval = next((i for i in intervals if i.observable == prediction.observable), None)
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
    implies = f"predicted {said:+g} %, measured {seen}: " + ("as predicted" if hit else "the prediction missed")
    ask = None if hit else "ask what the mechanism leaves out before building on it"
    return _finding("prediction", prediction.observable, said, measured, implies, ask)


def _finding(name: str, observable: str, said: float, seen: float, implies: str, ask: str | None) -> Finding:
    """`incumbent` is the predicted change and `candidate` the measured one, in percent."""
    return Finding(
        locus=Locus(kind=LocusKind.CODE_CHANGE, name=name),
        observable=observable,
        unit="%",
        incumbent=said,
        candidate=seen,
        delta=seen - said,
        status="inferred",
        implies=implies,
        next_test=ask,
    )
