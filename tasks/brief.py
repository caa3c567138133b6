"""An experiment as text for a model: bounded, with every figure that it keeps unrounded in meaning, and what it left out."""

from tasks.records import Experiment, Finding
from tasks.report import change, interval_text

MOST_TOKENS = 4000
BYTES_PER_TOKEN = 2  # fewer than any tokenizer spends on such text, so the bound holds for all of them
ORDER = {"measured": 0, "inferred": 1, "unknown": 2}


def brief(experiment: Experiment, most_tokens: int = MOST_TOKENS) -> str:
    """Verdict first, then intervals and findings until the bound is reached; the last line says what was left out."""
    verdict = experiment.verdict
    if verdict is None:
        return f"{experiment.hypothesis.title}: no verdict yet"
    asked, said = experiment.hypothesis, experiment.hypothesis.prediction
    head = [
        f"hypothesis: {_cut(asked.title)}",
        f"question: {asked.question}",
        f"outcome: {verdict.outcome}: {_cut(verdict.reason)}",
        f"predicted: {said.observable} {said.direction} {said.size:g} {said.unit}",
    ]
    if verdict.decided_by:
        head.append(f"criterion: {verdict.decided_by.key} = {verdict.decided_by.value}")
    ranked = sorted(verdict.findings, key=lambda f: (ORDER[f.status], -_size(f)))
    rest = [f"interval: {interval_text(i)}" for i in verdict.intervals] + [_line(finding) for finding in ranked]
    rest += [f"not run: {what}: {_cut(why)}" for what, why in verdict.not_run.items()]
    return _bounded(head, rest, most_tokens * BYTES_PER_TOKEN)


def _bounded(head: list[str], rest: list[str], most_bytes: int) -> str:
    lines, reserve = list(head), 60
    used = sum(len(line.encode()) + 1 for line in lines)
    kept = 0
    for line in rest:
        size = len(line.encode()) + 1
        if used + size + reserve > most_bytes:
            break
        lines.append(line)
        used, kept = used + size, kept + 1
    left = len(rest) - kept
    return "\n".join([*lines, f"left out: {left} lines" if left else "left out: nothing"])


def _line(finding: Finding) -> str:
    ask = f"; next: {finding.next_test}" if finding.next_test else ""
    where = f"{finding.locus.kind} `{finding.locus.name}`"
    return f"{finding.status}: {where}: {finding.observable}: {change(finding)}; {_cut(finding.implies)}{ask}"


def _size(finding: Finding) -> float:
    """Relative size of a change: the most telling finding first."""
    if finding.delta is None or not finding.incumbent:
        return 0.0
    return abs(finding.delta / finding.incumbent)


def _cut(text: str, most: int = 600) -> str:
    """One line of bounded length: what people wrote may be long."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"
