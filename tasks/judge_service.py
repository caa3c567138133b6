"""Does the deployed stack improve under traffic? First quality, then whether the traffic can be trusted, then the metrics."""

import math
from collections.abc import Sequence
from statistics import median

from serving.observables import OBSERVABLES
from tasks.drift import drift
from tasks.judgement import Criteria, Judgement
from tasks.noise import Noise
from tasks.paired import Comparison, against_gain, against_veto, compare, mean_of, percent
from tasks.records import Arm, Block, Evidence, Finding, Locus, LocusKind, Outcome, Record

DRIFT, FLOOR, FAILED, LAG = "logprob_drift", "logprob_floor", "failed_pct", "send_lag_p95_ms"
CACHE_WORDS = ("cache", "radix", "page-size", "schedule-policy")  # an edit of these may change the hits
UNEVEN_HITS = 0.02  # of the prompt tokens
LAYERS = ("server_queue_ms", "server_prefill_ms", "server_first_token_rest_ms", "server_decode_ms")


def judge_service(evidence: Evidence, criteria: Criteria, answers: bool) -> Judgement:
    """PASSED needs the whole interval of the primary observable and of every veto on the right side of its limit."""
    return _quality(evidence, criteria) or _trust(evidence, criteria) or _effect(evidence, criteria)


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
    workload = next(b.workload for b in blocks if b.observable == primary)
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


def is_decided(blocks: tuple[Block, ...], criteria: Criteria, noise: Noise | None) -> bool:
    """Whether these pairs force a verdict, so that more traffic would be a waste. Looking often is allowed."""
    return effect(blocks, criteria, noise).outcome is not Outcome.INCONCLUSIVE


def _effect(evidence: Evidence, criteria: Criteria) -> Judgement:
    found = effect(evidence.blocks, criteria, evidence.noise)
    observed = tuple(c.observable for c in found.compared)
    return Judgement(
        outcome=found.outcome,
        reason=f"service: {found.reason}; {_shown(found.compared[0])}",
        criterion=criteria.cite(found.key),
        intervals=tuple(c.interval for c in found.compared if c.interval is not None),
        findings=_findings(evidence, observed),
    )


def _scale(noise: Noise | None, observable: str) -> float | None:
    return None if noise is None else noise.scale(observable)


def _lower(observable: str) -> bool:
    return OBSERVABLES[observable].better == "down"


def _shown(main: Comparison) -> str:
    if main.interval is None:
        return f"{main.observable}: {main.reason}"
    i = main.interval
    return f"{i.observable} {i.estimate:+.1f} % [{i.low:+.1f}, {i.high:+.1f}] over {i.blocks} pairs"


def _trust(evidence: Evidence, criteria: Criteria) -> Judgement | None:
    """What makes traffic no measurement. The ids in brackets are those of docs/traps.md."""
    limit = criteria.limit("error_limit_pct")
    ours, theirs = (mean_of(evidence.blocks, FAILED, arm) for arm in (Arm.INCUMBENT, Arm.CANDIDATE))
    if ours is None or theirs is None:
        return Judgement.broken("service: the share of failed requests is not known [V6]")
    if ours > limit:
        return Judgement.broken(f"service: {ours:.1f} % of the incumbent's requests failed (limit {limit:g} %) [V6]")
    if theirs > limit:
        finding = _finding(
            evidence, FAILED, LocusKind.ENGINE_ARGUMENT, _edited(evidence), "requests fail under the edit"
        )
        reason = f"service: {theirs:.1f} % of the candidate's requests failed (limit {limit:g} %) [V6]"
        return Judgement.rejected(reason, criteria.cite("error_limit_pct"), (finding,))
    late = max((b.value or 0.0 for b in evidence.blocks if b.observable == LAG), default=0.0)
    if late > criteria.limit("greatest_send_lag_ms"):
        return Judgement.broken(
            f"service: the client was late by {late:.0f} ms: the load generator is the bottleneck [V7]"
        )
    return _same_conditions(evidence, criteria) or _missing(evidence, criteria)


def _same_conditions(evidence: Evidence, criteria: Criteria) -> Judgement | None:
    """Cache, work and speculation must be the same in both arms, and known."""
    facts = evidence.environment.facts
    if facts.get("radix_cache") not in ("on", "off"):
        return Judgement.broken("service: the state of the prefix cache was not recorded [V2]")
    if facts.get("simulated_acceptance") != "none":
        forced = facts.get("simulated_acceptance")
        return Judgement.inconclusive(
            f"service: the acceptance of drafts is forced (`{forced}`): no claim rests on it [V3]"
        )
    sent = [mean_of(evidence.blocks, "prompt_tokens", arm) for arm in Arm]
    if sent[0] is None or sent[0] != sent[1]:
        return Judgement.broken(f"service: the arms got different work: {_both(sent)} prompt tokens a block [V8]")
    hits = [mean_of(evidence.blocks, "cached_tokens", arm) for arm in Arm]
    uneven = hits[0] is None or hits[1] is None or abs(hits[0] - hits[1]) > UNEVEN_HITS * sent[0]
    if uneven and not any(word in _edited(evidence) for word in CACHE_WORDS):
        return Judgement.broken(f"service: a prefix cache favours one arm: {_both(hits)} cached tokens a block [V1]")
    primary = str(criteria.cite("primary").value)
    series = sorted((b for b in evidence.blocks if b.observable == primary), key=lambda b: b.order)
    moved = drift(level(series))
    if moved is not None:
        return Judgement.inconclusive(
            f"service: `{primary}` of both arms drifts by {percent(moved):+.0f} % over the run: it is not steady [V17]"
        )
    return None


def _both(values: list[float | None]) -> str:
    return " and ".join("unknown" if value is None else f"{value:.0f}" for value in values)


def level(series: Sequence[Block]) -> list[float]:
    """Log values in order of time, each without the median of its arm: what is left is the machine's."""
    known = [(b.arm, math.log(b.value)) for b in series if b.value is not None and b.value > 0]
    middle = {arm: median(v for a, v in known if a is arm) for arm in {a for a, _ in known}}
    return [value - middle[arm] for arm, value in known]


def _missing(evidence: Evidence, criteria: Criteria) -> Judgement | None:
    for key in criteria.keys("required_evidence"):
        name = str(criteria.cite(key).value)
        if any(mean_of(evidence.blocks, name, arm) is None for arm in Arm):
            return Judgement.inconclusive(
                f"service: required evidence is missing: `{name}` was not measured in both arms"
            )
    return None


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
    finding = Finding(
        locus=Locus(kind=LocusKind.INPUT_CONDITION, name=worst.workload),
        observable=DRIFT,
        unit="nats",
        incumbent=max(floors),
        candidate=worst.value,
        delta=None if worst.value is None else worst.value - max(floors),
        status="measured",
        implies="the edit changes what the model says, so its speed is not judged",
        next_test="dump both arms' layers on this prompt and find the first that differs",
    )
    reason = f"service: log-probabilities drift by {shown} at {worst.workload} (limit {limit:.3g}) [V5, V19]"
    return Judgement.rejected(reason, criteria.cite(key), (finding,))


def _edited(evidence: Evidence) -> str:
    return next((proof.what for proof in evidence.engagement if proof.arm is Arm.CANDIDATE), "the edit")


def _findings(evidence: Evidence, observed: tuple[str, ...]) -> tuple[Finding, ...]:
    edited = _edited(evidence)
    implies = "mean over blocks; the interval of the paired ratio decides"
    found = [_finding(evidence, name, LocusKind.ENGINE_ARGUMENT, edited, implies) for name in observed]
    where = "where the server spends a request's time; the four layers add up to its end-to-end time"
    layers = [_finding(evidence, name, LocusKind.INTERVAL, name.removesuffix("_ms"), where) for name in LAYERS]
    return (*found, *layers)


def _finding(evidence: Evidence, observable: str, kind: LocusKind, name: str, implies: str) -> Finding:
    before, after = (mean_of(evidence.blocks, observable, arm) for arm in (Arm.INCUMBENT, Arm.CANDIDATE))
    return Finding(
        locus=Locus(kind=kind, name=name),
        observable=observable,
        unit=OBSERVABLES[observable].unit,
        incumbent=before,
        candidate=after,
        delta=None if before is None or after is None else after - before,
        status="unknown" if before is None or after is None else "measured",
        implies=implies,
    )
