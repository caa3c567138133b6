"""Are the results right in every regime? fp32 results against fp64 with what IEEE fp32 itself loses as the yardstick."""

import sys

from tasks.judgement import Criteria, Judgement
from tasks.records import Arm, Block, Evidence, Finding, LocusKind, Outcome, Record

ERROR, IEEE = "_rel_error", "_ieee_rel_error"
FIXED, RATIO = "numerics.fp32_max_rel_error", "numerics.max_ratio_to_ieee_fp32"
ROUNDED, CODED = "numerics.bf16_max_rel_error", "numerics.coded_max_rel_error"
DRIFT = "numerics.drift_max_rel_error"
# By the end of the observable: what is limited by another criterion than the dtype's.
SPECIAL = {
    "_toward_zero_rel_error": "numerics.toward_zero_max_rel_error",
    "_drift_rel_error": DRIFT,
}
COUNTED = {
    "changed_untouched_slots": "numerics.max_changed_untouched_slots",
    "differing_elements": "numerics.max_differing_elements",
}
MISMATCHES, INTEGERS = "_mismatches", "numerics.max_integer_mismatches"


class Miss(Record):
    """One result that is outside its limit."""

    block: Block
    limit: float
    key: str

    @property
    def factor(self) -> float:
        """How many times the limit; a result that is not finite is worst."""
        return float("inf") if self.block.value is None else self.block.value / max(self.limit, 1e-300)


def judge_numerics(evidence: Evidence, criteria: Criteria, answers: bool) -> Judgement:
    """Every regime and result of the candidate within its limit. An incumbent that fails is a fault of ours."""
    ieee = {(b.workload, b.observable.removesuffix(IEEE)): b.value or 0.0 for b in evidence.blocks if _is_ieee(b)}
    ours = misses(evidence, Arm.INCUMBENT, criteria, ieee)
    if ours:
        return Judgement.broken(f"numerics: the incumbent itself fails: {_describe(ours[0])}")
    theirs = misses(evidence, Arm.CANDIDATE, criteria, ieee)
    if theirs:
        worst = max(theirs, key=lambda miss: miss.factor)
        regimes = list(dict.fromkeys(miss.block.workload for miss in theirs))
        reason = (
            f"numerics: wrong results in {len(regimes)} of {len(_regimes(evidence))} regimes ({', '.join(regimes)}); "
        )
        reason += f"worst: {_describe(worst)}"
        findings = tuple(_finding(evidence, _worst_of(theirs, regime)) for regime in regimes)
        return Judgement.rejected(reason, criteria.cite(worst.key), findings)
    closest = _closest(evidence, criteria, ieee)
    passed = f"numerics: right in all {len(_regimes(evidence))} regimes"
    if closest is None:
        return Judgement.broken("numerics: no error of the candidate was observed")
    return Judgement(
        outcome=Outcome.PASSED if answers else None,
        reason=f"{passed}; closest to its limit: {_describe(closest)}",
        criterion=criteria.cite(closest.key),
        findings=(_finding(evidence, closest),),
    )


def misses(evidence: Evidence, arm: Arm, criteria: Criteria, ieee: dict[tuple[str, str], float]) -> list[Miss]:
    """Everything of one arm that is outside its limit, in the order of the evidence."""
    found = [_limited(block, criteria, ieee) for block in evidence.blocks if block.arm is arm and not _is_ieee(block)]
    return [m for m in found if m is not None and (m.block.value is None or m.block.value > m.limit)]


def _limited(block: Block, criteria: Criteria, ieee: dict[tuple[str, str], float]) -> Miss | None:
    """A block with its limit; None for an observable that no criterion speaks about."""
    key = COUNTED.get(block.observable)
    if key is None and block.observable.endswith((ERROR, MISMATCHES)):
        special = [key for ending, key in SPECIAL.items() if block.observable.endswith(ending)]
        key = special[0] if special else limit_key(block.part or "")
    if key is None:
        return None
    if key != FIXED:
        return Miss(block=block, limit=criteria.limit(key), key=key)
    scaled = criteria.limit(RATIO) * ieee.get((block.workload, block.observable.removesuffix(ERROR)), 0.0)
    fixed = criteria.limit(FIXED)
    return Miss(block=block, limit=min(max(fixed, scaled), sys.float_info.max), key=FIXED if fixed >= scaled else RATIO)


def limit_key(dtype: str) -> str:
    """The criterion that limits the error of a result stored in `dtype`."""
    if dtype in ("int8", "float8_e4m3fn", "float8_e5m2"):
        return CODED
    return {"bfloat16": ROUNDED, "int32": INTEGERS}.get(dtype, FIXED)


def _place(block: Block) -> tuple[object, ...]:
    return block.arm, block.workload, block.observable, block.part


def _is_ieee(block: Block) -> bool:
    return block.observable.endswith(IEEE)


def _regimes(evidence: Evidence) -> list[str]:
    return list(dict.fromkeys(block.workload for block in evidence.blocks))


def _worst_of(found: list[Miss], regime: str) -> Miss:
    return max((miss for miss in found if miss.block.workload == regime), key=lambda miss: miss.factor)


def _closest(evidence: Evidence, criteria: Criteria, ieee: dict[tuple[str, str], float]) -> Miss | None:
    limited = [_limited(b, criteria, ieee) for b in evidence.blocks if b.arm is Arm.CANDIDATE and not _is_ieee(b)]
    errors = [m for m in limited if m is not None and m.block.observable.endswith(ERROR)]
    return max(errors, key=lambda miss: miss.factor, default=None)


def _describe(miss: Miss) -> str:
    value = "not finite" if miss.block.value is None else f"{miss.block.value:.2g}"
    which = f" ({miss.block.part})" if miss.key in COUNTED.values() else ""
    return f"{miss.block.observable}{which} {value} in regime `{miss.block.workload}` (limit {miss.limit:.2g})"


def _finding(evidence: Evidence, miss: Miss) -> Finding:
    drifts = miss.key == DRIFT  # of a dtype, in which the arms may differ
    same = miss.block.model_copy(update={"arm": Arm.INCUMBENT})
    arms = [b for b in evidence.blocks if b.arm is Arm.INCUMBENT]
    ours = [b.model_copy(update={"part": miss.block.part}) if drifts else b for b in arms]
    before = next((b.value for b in ours if _place(b) == _place(same)), None)
    after = miss.block.value
    wrong = after is None or after > miss.limit
    why = "the change alters the maths under this input condition"
    if drifts:
        why = f"`{miss.block.part}` itself loses this, whatever kernel computes it"
    ask = "compare each operation with fp64 alone in this regime, to see which one alters the maths"
    implies = f"above the limit of {miss.limit:.2g}: {why}" if wrong else f"within the limit of {miss.limit:.2g}"
    next_test = ("keep more bits, or write back less often" if drifts else ask) if wrong else None
    place, observable = miss.block.workload, miss.block.observable
    return Finding.at(LocusKind.INPUT_CONDITION, place, observable, "1", before, after, implies, next_test)
