"""Does the compiler emit less work, and does the machine code keep what it must not lose? Says nothing about speed."""

from statistics import geometric_mean

from tasks.judgement import Criteria, Judgement
from tasks.records import Arm, Evidence, Finding, LocusKind, Outcome
from tasks.static_table import WORK, Table, tables

ENGINE_TRITON, NO_TRITON = "engine_triton", "absent"  # a fact of the environment, and what it is without one
GATES = (
    ("spill_bytes", "static.max_spill_bytes", "spills registers to local memory"),
    ("registers", "static.max_registers", "uses more registers than allowed"),
)


def judge_static(evidence: Evidence, criteria: Criteria, answers: bool) -> Judgement:
    """As a gate: spills, registers, vector width. As the answer, also: less work in total, and on no workload more."""
    table, *others = tables(evidence.blocks)
    failed = next((found for one in (table, *others) if (found := _hard_gates(one, criteria))), None)
    if failed is not None:
        return failed
    same = _engine_compiles_it(evidence)
    if not answers:
        unlike = Judgement.inconclusive(f"static: {same.implies}") if same and _differs(evidence) else None
        holds = Judgement(outcome=None, reason="no spills, registers within the limit, vector width kept")
        return (unlike or holds).model_copy(update={"findings": (same,) if same else ()})
    told = (same,) if same and _differs(evidence) else ()
    findings = (
        *_work_findings(table),
        *told,
        *(finding for other in others for finding in _elsewhere(other, table.largest)),
    )
    if all(table.value(Arm.CANDIDATE, "code_changed", w) == 0 for w in table.workloads):
        return Judgement.rejected("no change: the same machine code in the same grids as the incumbent", None, findings)
    return _effect(table, criteria, findings)


def _differs(evidence: Evidence) -> bool:
    """Whether the engine that would run the kernel is known to compile it with another Triton."""
    facts = evidence.environment.facts
    return facts.get(ENGINE_TRITON, NO_TRITON) not in (NO_TRITON, facts.get("triton"))


def _engine_compiles_it(evidence: Evidence) -> Finding | None:
    """What keeps the code that was read from being the code that the engine runs; None if nothing is known to."""
    facts = evidence.environment.facts
    if facts.get(ENGINE_TRITON) in (None, facts.get("triton")):
        return None
    ours, theirs = facts.get("triton", "?"), facts[ENGINE_TRITON]
    if _differs(evidence):
        implies = f"read as Triton `{ours}` compiles it, but the engine has `{theirs}`, which emits other code: no dearer rung"
        ask = "install the engine's Triton in the orchestrator's environment and build again"
    else:
        implies = f"read as Triton `{ours}` compiles it; the engine environment here has no Triton to compare with"
        ask = "run where the engine has a GPU build, before the kernel is put into service"
    return Finding.at(LocusKind.CODE_PATH, "triton of the engine", "triton_version", "1", None, None, implies, ask)


def _hard_gates(table: Table, criteria: Criteria) -> Judgement | None:
    where = f" on {table.arch}" if table.arch else ""
    for observable, key, what in GATES:
        for workload in table.workloads:
            for kernel, value in table.parts(Arm.CANDIDATE, observable, workload).items():
                if value > criteria.limit(key):
                    finding = Finding.at(
                        LocusKind.KERNEL, kernel, observable, table.units[observable], None, value, what
                    )
                    reason = f"kernel `{kernel}` {what}: {value:g} {table.units[observable]} at {workload}{where}"
                    return Judgement.rejected(reason, criteria.cite(key), (finding,))
    key = "static.max_wide_share_loss_pct"
    for workload in table.workloads:
        before = table.value(Arm.INCUMBENT, "wide_share", workload)
        after = table.value(Arm.CANDIDATE, "wide_share", workload)
        if before is not None and after is not None and 100 * (before - after) > criteria.limit(key):
            lost = "16-byte loads and stores became narrower"
            finding = Finding.at(LocusKind.CODE_CHANGE, workload, "wide_share", "1", before, after, lost)
            reason = (
                f"vector width lost at {workload}{where}: {100 * before:.1f} % of bytes by 16-byte accesses became "
            )
            return Judgement.rejected(f"{reason}{100 * after:.1f} %", criteria.cite(key), (finding,))
    return None


def _effect(table: Table, criteria: Criteria, findings: tuple[Finding, ...]) -> Judgement:
    ratios = table.ratios(WORK)
    unknown = [w for w in table.workloads if w not in ratios]
    if unknown:
        return Judgement.inconclusive(
            f"static: warp instructions are not known at {unknown[0]}: {table.reason(unknown[0])}"
        )
    key = "static.smallest_effect_pct"
    wanted = criteria.limit(key)
    saved = 100 * (1 - geometric_mean(ratios.values()))
    worst = max(ratios, key=lambda w: ratios[w])
    figures = f"warp instructions {-saved:+.1f} % (geometric mean of {len(ratios)} workloads)"
    mufu = table.ratios("mufu")
    if mufu:
        figures += f", MUFU {100 * (geometric_mean(mufu.values()) - 1):+.1f} %"
    if ratios[worst] > 1:
        reason = f"more work at {worst}: warp instructions {100 * (ratios[worst] - 1):+.1f} %; {figures}"
        return Judgement.rejected(reason, criteria.cite(key), findings)
    if saved < wanted:
        reason = f"{figures}: less than the smallest effect of interest, {wanted:g} %"
        return Judgement.rejected(reason, criteria.cite(key), findings)
    return Judgement(
        outcome=Outcome.PASSED, reason=f"less work emitted: {figures}", criterion=criteria.cite(key), findings=findings
    )


def _work_findings(table: Table) -> list[Finding]:
    workload = table.largest
    kernel = max(table.parts(Arm.INCUMBENT, WORK, workload).items(), key=lambda item: item[1], default=("kernel", 0))[0]
    found = []
    for observable, what in ((WORK, "warp instructions"), ("mufu", "special-function instructions")):
        before = table.value(Arm.INCUMBENT, observable, workload)
        after = table.value(Arm.CANDIDATE, observable, workload)
        if before is None or after is None:
            continue
        trend = "fewer" if after < before else "more" if after > before else "as many"
        implies = f"{trend} {what} in all programs at {workload}; whether that is faster is not known"
        ask = "ask `faster kernel` where a GPU is"
        found.append(
            Finding.at(LocusKind.KERNEL, kernel, observable, table.units[observable], before, after, implies, ask)
        )
    return found


def _elsewhere(table: Table, workload: str) -> list[Finding]:
    """The work on a further architecture, whose counts say nothing beside those of the first."""
    before, after = (table.value(arm, WORK, workload) for arm in (Arm.INCUMBENT, Arm.CANDIDATE))
    if before is None or after is None:
        return []
    implies = f"a count of {table.arch} at {workload}, which is not comparable with another architecture's; it decides nothing"
    return [Finding.at(LocusKind.CODE_CHANGE, str(table.arch), WORK, table.units[WORK], before, after, implies)]
