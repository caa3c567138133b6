"""An experiment in words: for the terminal, and as the markdown and the table that the Prefect UI shows."""

from tasks.hypothesis import TIMED
from tasks.prediction_table import prediction_lines
from tasks.records import Evidence, Experiment, Finding, Interval, Plan, Refusal

Row = dict[str, str]
LARGE = 100.0  # from this ratio on, percent is harder to read than a factor


def figure(value: float | None, unit: str) -> str:
    """A value with its unit; an unknown one says so."""
    if value is None:
        return "unknown"
    whole = float(value).is_integer() or abs(value) >= 1e4
    shown = f"{value:,.0f}" if whole and abs(value) < 1e15 else f"{value:.4g}"
    return shown if unit == "1" else f"{shown} {unit}"


def change(finding: Finding) -> str:
    """`before → after (relative change)`, as far as both are known; of a percentage only the two, as nobody reads % of %."""
    before, after = figure(finding.incumbent, finding.unit), figure(finding.candidate, finding.unit)
    if finding.unit != "%" and finding.incumbent and finding.candidate is not None and finding.delta is not None:
        times = finding.candidate / finding.incumbent
        shown = f"{100 * (times - 1):+.1f} %" if abs(times) < LARGE else f"times {times:.2g}"
        return f"{before} → {after} ({shown})"
    return f"{before} → {after}"


def interval_text(interval: Interval) -> str:
    return (
        f"{interval.observable} at {interval.workload}: {interval.estimate:+.2f} {interval.unit} "
        f"[{interval.low:+.2f}, {interval.high:+.2f}], {100 * interval.confidence:.4g} %, {interval.blocks} pairs, "
        f"{interval.method}"
    )


def plan_text(plan: Plan) -> str:
    """The rungs that a plan visits and those it leaves out, each with its reason."""
    lines = [f"plan for hypothesis {plan.hypothesis_id[:12]}"]
    lines += [f"  {i}. {s.rung:<10} {s.purpose:<6} pool {s.pool:<14} {s.why}" for i, s in enumerate(plan.steps, 1)]
    if plan.confirms:
        lines.append(f"  a win is shown again on fresh requests: {plan.tried} hypotheses were timed at this target")
    lines += [f"  -  {rung:<10} left out: {why}" for rung, why in plan.left_out.items()]
    return "\n".join(lines)


def verdict_text(experiment: Experiment) -> str:
    """The end of an experiment for the terminal."""
    verdict = experiment.verdict
    if experiment.refusal is not None:
        return refusal_text(experiment.refusal)
    if verdict is None:
        return f"{experiment.hypothesis.title}\n  no verdict yet"
    lines = [
        f"{verdict.outcome}  {experiment.hypothesis.title}",
        f"  question: {experiment.hypothesis.question}",
        f"  reason: {verdict.reason}",
    ]
    if verdict.decided_by:
        rule = verdict.decided_by
        lines.append(f"  criterion: {rule.key} = {rule.value} in {rule.file} (digest {rule.digest[:12]})")
    lines += [f"  measured on: {where}" for where in measured_on(experiment)]
    lines += [f"  interval: {interval_text(interval)}" for interval in verdict.intervals]
    lines += [f"  {line}" for line in prediction_lines(experiment)]
    for finding in verdict.findings:
        lines.append(
            f"  {finding.status}: {finding.locus.kind} `{finding.locus.name}`, {finding.observable}: {change(finding)}"
        )
        lines.append(f"    implies: {finding.implies}")
        if finding.next_test:
            lines.append(f"    next: {finding.next_test}")
    lines += [f"  {what}: not run ({why})" for what, why in _grouped(verdict.not_run).items()]
    lines.append(f"  id: {experiment.hypothesis_id[:16]}  attempt: {experiment.attempt}")
    return "\n".join(lines)


def refusal_line(refusal: Refusal) -> str:
    """A refusal in a list of attempts."""
    asked = refusal.hypothesis
    return f"{asked.id[:12]}  {'REFUSED':<36}  {asked.question:<18}  {asked.title}: {refusal.reason}: {refusal.says}"


def refusal_text(refusal: Refusal) -> str:
    """Why a hypothesis was refused, for the terminal."""
    asked = refusal.hypothesis
    return "\n".join([
        f"REFUSED  {asked.title}",
        f"  question: {asked.question}",
        f"  reason: {refusal.reason}: {refusal.says}",
        f"  hint: {refusal.hint}",
        "  nothing was built and nothing was run, so this says nothing about whether it is true",
        f"  id: {asked.id[:16]}",
    ])  # fmt: skip


def summary(experiment: Experiment) -> str:
    """Markdown for the summary artifact."""
    verdict = experiment.verdict
    asked = experiment.hypothesis
    if experiment.refusal is not None:
        said = experiment.refusal
        return f"## REFUSED: {asked.title}\n\n**Reason:** {said.reason}: {said.says}  \n**Hint:** {said.hint}"
    lines = [f"## {verdict.outcome if verdict else 'no verdict'}: {asked.title}", ""]
    if verdict:
        lines += [f"**Reason:** {verdict.reason}", ""]
    if verdict and verdict.decided_by:
        rule = verdict.decided_by
        lines += [f"**Criterion:** `{rule.key}` = {rule.value} in `{rule.file}`, digest `{rule.digest[:12]}`", ""]
    lines += [f"**Question:** {asked.question}  ", f"**Prediction:** {_prediction(experiment)}  "]
    lines += [f"**Mechanism:** {asked.mechanism}", "", "| rung | purpose | ended | wall |", "|---|---|---|---|"]
    for step in experiment.plan.steps:
        evidence = experiment.of(step.rung)
        ended = "did not start" if evidence is None else evidence.not_run or evidence.candidate_fault or "observed"
        wall = "" if evidence is None else f"{evidence.wall_s:.1f} s"
        lines.append(f"| {step.rung} | {step.purpose} | {ended.replace('|', '/')} | {wall} |")
    if verdict and verdict.intervals:
        lines += ["", *(f"- {interval_text(interval)}" for interval in verdict.intervals)]
    predicted = prediction_lines(experiment)
    lines += ["", "```", *predicted, "```"] if predicted else []
    if verdict and verdict.not_run:
        lines += ["", *(f"- {what}: not run ({why})" for what, why in _grouped(verdict.not_run).items())]
    return "\n".join(lines)


def findings_table(experiment: Experiment) -> list[Row]:
    """One row per finding, for the table artifact."""
    return [
        {
            "locus": f"{finding.locus.kind}: {finding.locus.name}",
            "observable": finding.observable,
            "incumbent": figure(finding.incumbent, finding.unit),
            "candidate": figure(finding.candidate, finding.unit),
            "delta": figure(finding.delta, finding.unit),
            "status": finding.status,
            "implies": finding.implies,
            "next": finding.next_test or "",
        }
        for finding in (experiment.verdict.findings if experiment.verdict else ())
    ]


def measured_on(experiment: Experiment) -> list[str]:
    """The machine behind every timing, so that nobody takes a CPU's for a GPU's."""
    found = [place_of(evidence) for evidence in experiment.evidence]
    return [place for place in dict.fromkeys(found) if place is not None]


def place_of(evidence: Evidence) -> str | None:
    """The machine behind the timings of one rung; None where nothing was timed."""
    if evidence.rung not in TIMED or not evidence.blocks:
        return None
    facts = evidence.environment.facts
    device = facts.get("device") or facts.get("gpu", "unknown device")
    note = "; never evidence about a GPU" if device == "cpu" else ""
    return f"{device}: {facts.get('cpu', 'unknown')}, {facts.get('cores', '?')} cores{note}"


def _grouped(not_run: dict[str, str]) -> dict[str, str]:
    """Names with the same reason on one line."""
    by_reason: dict[str, list[str]] = {}
    for what, why in not_run.items():
        by_reason.setdefault(why, []).append(what)
    return {", ".join(names): why for why, names in by_reason.items()}


def _prediction(experiment: Experiment) -> str:
    said = experiment.hypothesis.prediction
    return f"{said.observable} {said.direction}" + (f" by {said.size:g} {said.unit}" if said.size else "")
