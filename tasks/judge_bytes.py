"""Does a step move fewer bytes? Unique bytes as the interpreter counted them over whole cycles, at each check.

Counted without a cache: each 32-byte sector once a launch. Says nothing about speed: what the bytes cost, a GPU shows.
"""

from statistics import geometric_mean

from tasks.judge_numerics import judge_numerics
from tasks.judgement import Criteria, Judgement
from tasks.records import Arm, Evidence, Finding, LocusKind, Outcome
from tasks.static_table import Table

BYTES, REQUESTED = "unique_bytes", "requested_bytes"
KEY = "bytes.smallest_effect_pct"


def judge_bytes(evidence: Evidence, criteria: Criteria, answers: bool) -> Judgement:
    """Right results first; then at least the smallest effect fewer unique bytes, in the mean of all counted checks."""
    right = judge_numerics(evidence, criteria, answers=False)
    if right.outcome is not None:
        return right
    totals = {arm: _totals(Table(evidence.blocks), arm) for arm in Arm}
    ratios = {
        check: totals[Arm.CANDIDATE][check] / before
        for check, before in totals[Arm.INCUMBENT].items()
        if before and check in totals[Arm.CANDIDATE]
    }
    try:
        cited, wanted = criteria.cite(KEY), criteria.limit(KEY)
    except KeyError:
        return Judgement.inconclusive(f"the criteria say nothing of bytes: they have no `{KEY}`")
    if not ratios:
        return Judgement.inconclusive(
            "numerics: bytes were counted at no check: none covers a whole cycle of both arms"
        )
    saved = 100 * (1 - geometric_mean(ratios.values()))
    figures = (
        f"unique bytes of a step {-saved:+.1f} % (geometric mean of {len(ratios)} checks, counted over whole cycles)"
    )
    findings = (_finding(max(ratios, key=lambda check: totals[Arm.INCUMBENT][check]), totals), *right.findings)
    worst = max(ratios, key=lambda check: ratios[check])
    if ratios[worst] > 1:
        reason = f"more bytes at {worst}: {100 * (ratios[worst] - 1):+.1f} %; {figures}"
        return Judgement.rejected(reason, cited, findings)
    if saved < wanted:
        return Judgement.rejected(
            f"{figures}: less than the smallest effect of interest, {wanted:g} %", cited, findings
        )
    return Judgement(outcome=Outcome.PASSED, reason=f"fewer bytes moved: {figures}", criterion=cited, findings=findings)


def _totals(table: Table, arm: Arm) -> dict[str, float]:
    """Unique bytes of one step in all kernels, by check."""
    counted = {check: table.parts(arm, BYTES, check) for check in table.workloads}
    return {check: sum(parts.values()) for check, parts in counted.items() if parts}


def _finding(check: str, totals: dict[Arm, dict[str, float]]) -> Finding:
    before, after = totals[Arm.INCUMBENT][check], totals[Arm.CANDIDATE][check]
    trend = "fewer" if after < before else "more"
    implies = f"{trend} bytes of a step, {before / after:.2f} to 1; whether that is faster is not known"
    ask = "ask `faster kernel` where a GPU is"
    return Finding.at(LocusKind.INPUT_CONDITION, check, BYTES, "B", before, after, implies, ask)
