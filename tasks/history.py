"""What the objects of a ledger mean together: attempts at hypotheses, the latest of them, and noise that is already known."""

from collections.abc import Mapping

from serving.errors import BadInput, Broken
from tasks.hypothesis import TIMED
from tasks.ledger import KINDS, Contents, Entry, Ledger
from tasks.noise import Noise, noise_key
from tasks.records import Build, Evidence, Experiment, Hypothesis, Plan, Record, Refusal, Rung, Verdict


def attempts(contents: Contents) -> list[Experiment]:
    """One view per attempt that has its hypothesis and plan, oldest first by start."""
    by_attempt: dict[tuple[str, str], list[Entry]] = {}
    for entry in contents.entries:
        by_attempt.setdefault((entry.hypothesis_id, entry.attempt), []).append(entry)
    views = [(entries[0].written_at, view(entries)) for entries in by_attempt.values()]
    return [found for _, found in sorted(views, key=lambda pair: pair[0]) if found is not None]


def view(entries: list[Entry]) -> Experiment | None:
    records = [KINDS[entry.kind].model_validate(entry.record) for entry in sorted(entries, key=lambda e: e.seq)]
    hypothesis = next((r for r in records if isinstance(r, Hypothesis)), None)
    plan = next((r for r in records if isinstance(r, Plan)), None)
    if hypothesis is None or plan is None:
        return None
    experiment = Experiment(hypothesis_id=hypothesis.id, attempt=entries[0].attempt, hypothesis=hypothesis, plan=plan)
    for record in records:
        if isinstance(record, Build | Evidence | Verdict):
            experiment = experiment.with_record(record)
    return experiment


def refusals(contents: Contents) -> list[Refusal]:
    """What was refused before a build, oldest first."""
    found = [entry for entry in contents.entries if entry.kind == "refusal"]
    return [Refusal.model_validate(entry.record) for entry in sorted(found, key=lambda e: e.written_at)]


def latest(ledger: Ledger, prefix: str) -> Experiment:
    """The last attempt at the hypothesis whose id starts with `prefix`. Raises `BadInput` for none or several."""
    found = attempts(ledger.read(prefix)) if prefix else []
    ids = sorted({experiment.hypothesis_id for experiment in found})
    if not ids:
        raise BadInput(f"no experiment with the id `{prefix}`", "`infra-agent ledger list` shows the ids")
    if len(ids) > 1:
        raise BadInput(
            f"the id `{prefix}` is ambiguous: {', '.join(i[:12] for i in ids)}", "give more characters of the id"
        )
    return found[-1]


def attempt_of(ledger: Ledger, hypothesis_id: str, attempt: str) -> Experiment:
    """One attempt as it stands now. Raises `Broken` if the ledger does not hold it."""
    found = [e for e in attempts(ledger.read(hypothesis_id)) if e.attempt == attempt]
    if not found:
        raise Broken(
            f"the ledger `{ledger.url}` does not hold the attempt `{attempt}` at `{hypothesis_id[:12]}`",
            "machines that share experiments need a ledger that all of them reach: set INFRA_AGENT_LEDGER",
        )
    return found[0]


def tried(ledger: Ledger, hypothesis: Hypothesis) -> int:
    """How many hypotheses have been timed at this target, this one included: the best of several must be shown again."""
    timed = {
        experiment.hypothesis_id
        for experiment in attempts(ledger.read())
        if experiment.hypothesis.target == hypothesis.target
        and any(evidence.rung in TIMED and evidence.blocks for evidence in experiment.evidence)
    }
    return len(timed | {hypothesis.id})


def recall_noise(ledger: Ledger, rung: Rung, workload: str, facts: Mapping[str, str]) -> Noise | None:
    """The latest A/A run of a rung under the same facts, or None."""
    found = ledger.read(noise_key(rung, workload, dict(facts))).entries
    return Noise.model_validate(found[-1].record) if found else None


def keep_noise(ledger: Ledger, attempt: str, record: Record) -> None:
    """Store the A/A run that evidence brings, unless it was recalled from this ledger."""
    noise = record.noise if isinstance(record, Evidence) else None
    if noise is not None and recall_noise(ledger, noise.rung, noise.workload, noise.facts) != noise:
        ledger.append(noise.id, attempt, noise)
