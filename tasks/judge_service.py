"""Does the deployed stack improve under traffic? First what it computes, asked by the guard and under traffic; then whether the
traffic can be trusted; then the metrics."""

from serving.observables import LAYERS, OBSERVABLES
from tasks.decomposition import plain
from tasks.judge_answers import answers_finding, judge_answers, not_read
from tasks.judgement import Criteria, Judgement
from tasks.noise import Noise
from tasks.paired import Comparison, against_gain, against_veto, compare, mean_of
from tasks.records import Arm, Block, Evidence, Finding, LocusKind, Outcome, Record
from tasks.service_trust import distrust, edited, lost_requests, service_finding

DRIFT, FLOOR = "logprob_drift", "logprob_floor"
CALLS, CALL_TIME = "code_calls", "code_us"


def judge_service(evidence: Evidence, criteria: Criteria, answers: bool) -> Judgement:
    """PASSED needs the whole interval of the primary observable and of every veto on the right side of its limit."""
    return (
        _quality(evidence, criteria)
        or _idle(evidence)
        or lost_requests(evidence, criteria)
        or judge_answers(evidence, criteria)
        or distrust(evidence, criteria)
        or _effect(evidence, criteria)
    )


class Effect(Record):
    """What the paired blocks say: an outcome, the key of the criterion that decided, and every comparison made."""

    outcome: Outcome
    key: str
    reason: str
    compared: tuple[Comparison, ...]


def effect(blocks: tuple[Block, ...], criteria: Criteria, noise: Noise | None) -> Effect:
    """Primary observable and vetoes against their limits; the error of the vetoes is shared out among them."""
    alpha = 1 - criteria.limit("confidence")
    vetoes = {key.removeprefix("vetoes."): criteria.limit(key) for key in criteria.keys("vetoes")}
    primary = str(criteria.cite("primary").value)
    workload = next((b.workload for b in blocks if b.observable == primary), None)
    if workload is None:
        return _unmeasured(primary)
    main = compare(blocks, primary, workload, alpha, _scale(noise, primary))
    watched = {name: compare(blocks, name, workload, alpha / len(vetoes), _scale(noise, name)) for name in vetoes}
    wanted = criteria.limit("smallest_effect_of_interest_pct")
    gain = against_gain(main.interval, wanted, _lower(primary))
    lost = {name: against_veto(found.interval, vetoes[name], _lower(name)) for name, found in watched.items()}
    vetoed = [name for name, outcome in lost.items() if outcome is Outcome.REJECTED]
    open_vetoes = [name for name, outcome in lost.items() if outcome is Outcome.INCONCLUSIVE]
    if vetoed:
        outcome, key, reason = Outcome.REJECTED, f"vetoes.{vetoed[0]}", f"`{vetoed[0]}` regresses past its limit"
    elif gain is Outcome.REJECTED:
        outcome, key = Outcome.REJECTED, "smallest_effect_of_interest_pct"
        reason = f"`{primary}` is not better by the smallest effect of interest, {wanted:g} %"
    elif gain is Outcome.PASSED and not open_vetoes:
        outcome, key = Outcome.PASSED, "smallest_effect_of_interest_pct"
        reason = f"`{primary}` is better by at least {wanted:g} %, and no watched observable regresses past its limit"
    else:
        outcome, key = Outcome.INCONCLUSIVE, "smallest_effect_of_interest_pct"
        undecided = [*([primary] if gain is Outcome.INCONCLUSIVE else []), *open_vetoes]
        reason = "the pairs do not decide " + ", ".join(f"`{name}`" for name in undecided)
    return Effect(outcome=outcome, key=key, reason=reason, compared=(main, *watched.values()))


def _unmeasured(primary: str) -> Effect:
    nothing = Comparison(observable=primary, workload="", interval=None, reason="not measured")
    return Effect(
        outcome=Outcome.INCONCLUSIVE,
        key="primary",
        reason=f"the primary observable `{primary}` was not measured",
        compared=(nothing,),
    )


def is_decided(blocks: tuple[Block, ...], criteria: Criteria, noise: Noise | None) -> bool:
    """Whether these pairs force a verdict, so that more traffic would be a waste. Looking often is allowed."""
    return effect(blocks, criteria, noise).outcome is not Outcome.INCONCLUSIVE


def _effect(evidence: Evidence, criteria: Criteria) -> Judgement:
    found = effect(evidence.blocks, criteria, evidence.noise)
    observed = tuple(c.observable for c in found.compared)
    why = not_read(evidence)
    unread = "" if why is None else f"; answers under traffic: not measured ({why})"
    return Judgement(
        outcome=found.outcome,
        reason=f"service: {found.reason}; {_shown(evidence, found.compared[0])}{unread}",
        criterion=criteria.cite(found.key),
        intervals=tuple(c.interval for c in found.compared if c.interval is not None),
        findings=_findings(evidence, observed),
    )


def _scale(noise: Noise | None, observable: str) -> float | None:
    return None if noise is None else noise.scale(observable)


def _lower(observable: str) -> bool:
    return OBSERVABLES[observable].better == "down"


def _shown(evidence: Evidence, main: Comparison) -> str:
    """The ratio with the means over blocks beside it: no ratio stands alone."""
    if main.interval is None:
        return f"{main.observable}: {main.reason}"
    i, unit = main.interval, OBSERVABLES[main.observable].unit
    known = [mean_of(evidence.blocks, main.observable, arm) for arm in Arm]
    before, after = ("unknown" if value is None else f"{value:.4g}" for value in known)
    return f"{i.observable} {before} → {after} {unit}, {i.estimate:+.1f} % [{i.low:+.1f}, {i.high:+.1f}] over {i.blocks} pairs"


def _quality(evidence: Evidence, criteria: Criteria) -> Judgement | None:
    """Teacher-forced log-probabilities on the same tokens; what the incumbent does against itself is the floor."""
    key = "guard.greatest_logprob_drift"
    drifts = [b for b in evidence.blocks if b.observable == DRIFT]
    floors = [b.value for b in evidence.blocks if b.observable == FLOOR and b.value is not None]
    if not drifts or not floors:
        return Judgement.broken("service: log-probabilities of the arms were not compared [V5]")
    limit = max(criteria.limit(key), max(floors))
    worst = max(drifts, key=lambda b: float("inf") if b.value is None else b.value)
    if worst.value is not None and worst.value <= limit:
        return None
    shown = "not finite" if worst.value is None else f"{worst.value:.3g} nats"
    implies = "the edit changes what the model says, so its speed is not judged"
    ask = "dump both arms' layers on this prompt and find the first that differs"
    floor, place = max(floors), worst.workload
    finding = Finding.at(LocusKind.INPUT_CONDITION, place, DRIFT, "nats", floor, worst.value, implies, ask)
    reason = f"service: log-probabilities drift by {shown} at {worst.workload} (limit {limit:.3g}) [V5, V19]"
    return Judgement.rejected(reason, criteria.cite(key), (finding,))


def _idle(evidence: Evidence) -> Judgement | None:
    """Other code that is called now and then proves nothing about the blocks in which it is not."""
    idle = [b.order for b in evidence.blocks if b.observable == CALLS and b.arm is Arm.CANDIDATE and b.value == 0]
    return Judgement.broken(f"service: block {idle[0]} made no call of the code under test") if idle else None


def _findings(evidence: Evidence, observed: tuple[str, ...]) -> tuple[Finding, ...]:
    change = edited(evidence)
    of_code = any(block.observable == CALLS for block in evidence.blocks)
    kind = LocusKind.CODE_CHANGE if of_code else LocusKind.ENGINE_ARGUMENT
    implies = "mean over blocks; the interval of the paired ratio decides"
    found = [service_finding(evidence, name, kind, change, implies) for name in observed]
    if of_code:
        told = "mean time of a call under this traffic, as the server counts it"
        found.append(service_finding(evidence, CALL_TIME, LocusKind.KERNEL, "calls that are counted", told))
    where = "where a request's time goes; layers and the unexplained rest add up to its end-to-end time"
    there = {block.observable for block in evidence.blocks}
    layers = [
        service_finding(evidence, name, LocusKind.INTERVAL, plain(name), where) for name in LAYERS if name in there
    ]
    return (*found, *layers, *answers_finding(evidence))
