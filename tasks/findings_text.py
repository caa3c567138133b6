"""What the ledger and the catalogue say about a target, as entries of a prompt: newest and most telling first."""

import difflib
import json
from collections.abc import Sequence

from tasks.brief import brief
from tasks.history import refusals
from tasks.ledger import Contents
from tasks.records import (
    Digest,
    Experiment,
    Hypothesis,
    KernelCandidate,
    KernelTarget,
    Outcome,
    Record,
    StackEdit,
    Target,
    digest,
)
from tasks.refusal import Refusal
from tasks.subject import KernelSubject, Subject

BRIEF_TOKENS = 900  # of one experiment
DIFF_BYTES = 3000
JUDGED = (Outcome.PASSED, Outcome.REJECTED)  # INCONCLUSIVE tells less, BROKEN nothing


class Entries(Record):
    texts: tuple[str, ...]
    ids: tuple[Digest, ...] = ()
    left_out: tuple[str, ...] = ()


def experiment_entries(subject: Subject, found: Sequence[Experiment]) -> Entries:
    """One for each hypothesis about the target that was judged, by its latest attempt. `found`: oldest first."""
    mine = {e.hypothesis_id: e for e in found if subject.about(e.hypothesis.target) and _judged(e)}
    newest = sorted(mine.values(), key=lambda e: e.attempt, reverse=True)
    ranked = sorted(newest, key=lambda e: bool(e.verdict and e.verdict.outcome not in JUDGED))
    silent = {e.hypothesis_id for e in found if subject.about(e.hypothesis.target)} - set(mine)
    said = (f"{len(silent)} experiments that ended without a judgement",) if silent else ()
    return Entries(
        texts=tuple(_experiment(e, subject) for e in ranked), ids=tuple(e.hypothesis_id for e in ranked), left_out=said
    )


def refusal_entries(subject: Subject, contents: Contents) -> Entries:
    """Refusals of hypotheses about the target, the newest first, each once."""
    texts = [refusal_text(x) for x in reversed(refusals(contents)) if subject.about(x.hypothesis.target)]
    return Entries(texts=tuple(dict.fromkeys(texts)))


def refusal_text(refusal: Refusal) -> str:
    return (
        f"refused, {refusal.reason}: `{_line(refusal.hypothesis.title)}`: {_line(refusal.says)}; {_line(refusal.hint)}"
    )


def catalogue_entries(subject: Subject, found: Sequence[Experiment]) -> Entries:
    """Techniques that people keep for the target and that nobody tried yet; the tried ones are among the findings."""
    tried = {e.hypothesis_id for e in found if _judged(e)}
    texts = [_technique(x) for x in subject.catalogue if x.id not in tried]
    known = len(subject.catalogue) - len(texts)
    return Entries(
        texts=tuple(texts), left_out=(f"{known} of the catalogue that stand among the findings",) if known else ()
    )


def _judged(experiment: Experiment) -> bool:
    return experiment.verdict is not None and experiment.verdict.outcome is not Outcome.BROKEN


def _experiment(experiment: Experiment, subject: Subject) -> str:
    asked = experiment.hypothesis
    lines = [f"experiment {asked.id}", brief(experiment, BRIEF_TOKENS), f"mechanism claimed: {_line(asked.mechanism)}"]
    if _incumbent(subject) != asked.target.incumbent_digest:
        lines.append("note: the incumbent was another one then")
    return "\n".join([*lines, *_form(asked.target), *_change(asked, subject)])


def _incumbent(subject: Subject) -> str:
    return digest(subject.problem.incumbent.source) if isinstance(subject, KernelSubject) else subject.spec.digest


def _form(target: Target) -> list[str]:
    launch = target.incumbent_launch if isinstance(target, KernelTarget) else {}
    return [f"compared with the incumbent under {json.dumps(launch, sort_keys=True)}"] if launch else []


def _change(asked: Hypothesis, subject: Subject) -> list[str]:
    match asked.change:
        case KernelCandidate(source=source, launch=launch):
            options = [f"launch: {json.dumps(launch, sort_keys=True)}"] if launch else []
            return [*options, *_diff(source, subject)]
        case StackEdit(roles=roles):
            edits = {role: edit.model_dump(exclude_defaults=True) for role, edit in roles.items()}
            return [f"change: {json.dumps(edits, sort_keys=True)}"]
        case patch:
            return [f"change: a patch of {patch.package} {patch.version}", patch.diff[:DIFF_BYTES]]


def _diff(source: str, subject: Subject) -> list[str]:
    """Against the incumbent as it is now; a long one only by its size."""
    before = subject.problem.incumbent.source if isinstance(subject, KernelSubject) else ""
    if source == before:
        return ["source: the incumbent's own"]
    lines = list(
        difflib.unified_diff(before.splitlines(), source.splitlines(), "incumbent", "candidate", n=0, lineterm="")
    )
    text = "\n".join(lines)
    return [text] if len(text.encode()) <= DIFF_BYTES else [f"change: {len(lines)} lines of a diff, too long to show"]


def _technique(hypothesis: Hypothesis) -> str:
    said = hypothesis.prediction
    return (
        f"`{_line(hypothesis.title)}`: asks {hypothesis.question}, predicts {said.observable} {said.direction} "
        f"{said.size:g} {said.unit}; {_line(hypothesis.rationale)}"
    )


def _line(text: str, most: int = 500) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"
