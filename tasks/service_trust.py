"""When traffic is no measurement: failures, a late client, uneven caches or work, a machine that does not stand still.

The ids in brackets are those of docs/traps.md.
"""

import math
from collections.abc import Sequence
from statistics import median

from serving.observables import OBSERVABLES
from tasks.drift import drift
from tasks.judgement import Criteria, Judgement
from tasks.paired import mean_of, percent
from tasks.records import Arm, Block, Evidence, Finding, LocusKind

LOST = {"failed_pct": "failed", "cancelled_pct": "were cancelled"}
LAGS = ("send_lag_p95_ms", "loop_lag_p95_ms")
CACHE_WORDS = ("cache", "radix", "page-size", "schedule-policy")  # an edit of these may change the hits
UNEVEN_HITS = 0.02  # of the prompt tokens


def distrust(evidence: Evidence, criteria: Criteria) -> Judgement | None:
    """What makes traffic no measurement. The ids in brackets are those of docs/traps.md."""
    late = max((b.value or 0.0 for b in evidence.blocks if b.observable in LAGS), default=0.0)
    if late > criteria.limit("greatest_send_lag_ms"):
        return Judgement.broken(
            f"service: the client was late by {late:.0f} ms: the load generator is the bottleneck [V7]"
        )
    return _same_conditions(evidence, criteria) or _missing(evidence, criteria)


def lost_requests(evidence: Evidence, criteria: Criteria) -> Judgement | None:
    """When too many requests of an arm have no answer: of the candidate its fault, of the incumbent ours."""
    each = (_lost(evidence, criteria, name, happened) for name, happened in LOST.items())
    return next((lost for lost in each if lost is not None), None)


def _lost(evidence: Evidence, criteria: Criteria, name: str, happened: str) -> Judgement | None:
    """Requests of which there is no time. Evidence from before cancelled ones were counted has none of them."""
    limit = criteria.limit("error_limit_pct")
    ours, theirs = (mean_of(evidence.blocks, name, arm) for arm in (Arm.INCUMBENT, Arm.CANDIDATE))
    if ours is None or theirs is None:
        if name == "cancelled_pct":
            return None
        return Judgement.broken("service: the share of failed requests is not known [V6]")
    if ours > limit:
        return Judgement.broken(
            f"service: {ours:.1f} % of the incumbent's requests {happened} (limit {limit:g} %) [V6]"
        )
    if theirs <= limit:
        return None
    finding = service_finding(
        evidence, name, LocusKind.ENGINE_ARGUMENT, edited(evidence), f"requests {happened} under the edit"
    )
    reason = f"service: {theirs:.1f} % of the candidate's requests {happened} (limit {limit:g} %) [V6]"
    return Judgement.rejected(reason, criteria.cite("error_limit_pct"), (finding,))


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
    if uneven and not any(word in edited(evidence) for word in CACHE_WORDS):
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


def edited(evidence: Evidence) -> str:
    return next((proof.what for proof in evidence.engagement if proof.arm is Arm.CANDIDATE), "the edit")


def service_finding(evidence: Evidence, observable: str, kind: LocusKind, name: str, implies: str) -> Finding:
    before, after = (mean_of(evidence.blocks, observable, arm) for arm in (Arm.INCUMBENT, Arm.CANDIDATE))
    unit, both = OBSERVABLES[observable].unit, None not in (before, after)
    return Finding.at(kind, name, observable, unit, before, after, implies, status="measured" if both else "unknown")
