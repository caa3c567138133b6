"""A campaign: which hypotheses are still open, when a budget ends, and what came of it. The ledger is all that it remembers,
so a campaign that was killed goes on where it was: what is decided stays decided, and the rest is open.
"""

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serving.documents import read_document
from serving.errors import BadInput
from tasks.accounting import cost_of, total
from tasks.history import attempts
from tasks.hypothesis_file import load_hypothesis
from tasks.ledger import Contents
from tasks.plan import make_plan
from tasks.records import Digest, Experiment, Hypothesis, Outcome, Record, Refusal, RefusedFor, Text


class BudgetPart(BaseModel):
    """Of one run of the campaign. When one of them ends, no further experiment starts; one under way is finished."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    experiments: Annotated[int, Field(ge=1)] | None = None
    seconds: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.experiments is None and self.seconds is None:
            raise ValueError("a budget of `experiments`, of `seconds`, or of both is needed")
        return self

    def ended(self, experiments: int, seconds: float) -> str | None:
        """Which budget has ended after so many experiments and seconds, or None."""
        if self.experiments is not None and experiments >= self.experiments:
            return f"the budget of {self.experiments} experiments"
        if self.seconds is not None and seconds >= self.seconds:
            return f"the budget of {self.seconds:g} s"
        return None


class CampaignFile(BaseModel):
    """`hypotheses`: files or globs, relative to the campaign's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: Text
    hypotheses: Annotated[tuple[Text, ...], Field(min_length=1)]
    budget: BudgetPart


class Refused(Record):
    """A file of the catalogue that is no hypothesis which could run; it stops no other."""

    file: Text
    message: Text


class Catalogue(Record):
    hypotheses: tuple[Hypothesis, ...]
    refused: tuple[Refused, ...]


class Trial(Record):
    """One experiment of the campaign; `outcome` is None if it ended without a verdict."""

    hypothesis_id: Digest
    attempt: Text
    title: Text
    outcome: Outcome | None
    reason: str


class Challenged(Record):
    """A hypothesis that was refused before a build, so that no evidence speaks for or against it."""

    hypothesis_id: Digest
    title: Text
    reason: RefusedFor
    says: Text


class CampaignReport(Record):
    """`refused`: files that hold no hypothesis. `challenged`: hypotheses that are not worth a build. `left`: open ones
    that a budget kept from starting. `device_s`: seconds that GPUs were held, None if unknown."""

    title: Text
    trials: tuple[Trial, ...]
    decided_before: int
    left: tuple[Text, ...]
    refused: tuple[Refused, ...]
    challenged: tuple[Challenged, ...] = ()
    ended_by: Text
    wall_s: float
    device_s: float | None

    def count(self, outcome: Outcome) -> int:
        return sum(trial.outcome is outcome for trial in self.trials)


def load_campaign(path: Path) -> CampaignFile:
    """Raises `BadInput`."""
    return read_document(path, CampaignFile)


def read_catalogue(campaign: CampaignFile, folder: Path) -> Catalogue:
    """Every hypothesis that the campaign names, once, in the order of its file. Raises `BadInput` if there is none."""
    found: dict[str, Hypothesis] = {}
    refused: list[Refused] = []
    for path in _paths(campaign.hypotheses, folder):
        try:
            hypothesis = load_hypothesis(path)
            make_plan(hypothesis)
            found.setdefault(hypothesis.id, hypothesis)
        except BadInput as error:
            refused.append(Refused(file=path.name, message=error.message))
    if not found:
        first = f": {refused[0].message}" if refused else ""
        raise BadInput(f"the campaign `{campaign.title}` names no hypothesis{first}", "see `hypotheses` in its file")
    return Catalogue(hypotheses=tuple(found.values()), refused=tuple(refused))


def _paths(patterns: Iterable[str], folder: Path) -> list[Path]:
    """A name without a wildcard stands for itself, so that one which is missing is refused by name."""
    named = [sorted(glob.glob(p, root_dir=folder, recursive=True)) if glob.has_magic(p) else [p] for p in patterns]
    return list(dict.fromkeys((folder / path).resolve() for paths in named for path in paths))


def still_open(catalogue: Catalogue, contents: Contents) -> tuple[Hypothesis, ...]:
    """Those that no attempt has decided. BROKEN, or no verdict at all, decides nothing."""
    decided = {
        experiment.hypothesis_id
        for experiment in attempts(contents)
        if experiment.verdict and experiment.verdict.outcome is not Outcome.BROKEN
    }
    return tuple(hypothesis for hypothesis in catalogue.hypotheses if hypothesis.id not in decided)


def report(
    campaign: CampaignFile,
    catalogue: Catalogue,
    was_open: Sequence[Hypothesis],
    ended: Sequence[Experiment],
    wall_s: float,
) -> CampaignReport:
    """What came of the campaign. `was_open`: what it could try, of which it tried the first `len(ended)`."""
    left = tuple(hypothesis.title for hypothesis in was_open[len(ended) :])
    tried = started(ended)
    return CampaignReport(
        title=campaign.title,
        trials=tuple(_trial(experiment) for experiment in tried),
        decided_before=len(catalogue.hypotheses) - len(was_open),
        left=left,
        refused=catalogue.refused,
        challenged=tuple(_challenged(experiment.refusal) for experiment in ended if experiment.refusal),
        ended_by=(campaign.budget.ended(len(tried), wall_s) or "a budget") if left else "nothing was left to try",
        wall_s=wall_s,
        device_s=total(cost_of(experiment) for experiment in ended).device_s,
    )


def started(ended: Sequence[Experiment]) -> tuple[Experiment, ...]:
    """Those that were not refused: only they count against a budget of experiments."""
    return tuple(experiment for experiment in ended if experiment.refusal is None)


def _challenged(refusal: Refusal) -> Challenged:
    asked = refusal.hypothesis
    return Challenged(hypothesis_id=asked.id, title=asked.title, reason=refusal.reason, says=refusal.says)


def _trial(experiment: Experiment) -> Trial:
    verdict = experiment.verdict
    return Trial(
        hypothesis_id=experiment.hypothesis_id,
        attempt=experiment.attempt,
        title=experiment.hypothesis.title,
        outcome=verdict.outcome if verdict else None,
        reason=verdict.reason if verdict else "no verdict",
    )


def report_text(report: CampaignReport) -> str:
    """Markdown that reads well in a terminal, too."""
    device = "unknown" if report.device_s is None else f"{report.device_s:.1f} s"
    counts = ", ".join(f"{outcome.lower()} {report.count(outcome)}" for outcome in Outcome)
    lines = [
        f"## Campaign: {report.title}",
        "",
        f"tried {len(report.trials)}: {counts}  ",
        f"decided before: {report.decided_before}, left: {len(report.left)}, refused: {len(report.refused)}, "
        f"refused before a build: {len(report.challenged)}  ",
        f"ended by: {report.ended_by}  ",
        f"wall time: {report.wall_s:.1f} s, device time: {device}",
        "",
    ]
    lines += [
        f"- **{t.outcome or 'no verdict'}** {t.title} (`{t.hypothesis_id[:12]}`): {t.reason}" for t in report.trials
    ]
    lines += [f"- left: {title}" for title in report.left]
    lines += [
        f"- refused before a build: {c.title} (`{c.hypothesis_id[:12]}`): {c.reason}: {c.says}"
        for c in report.challenged
    ]
    lines += [f"- refused: `{refused.file}`: {refused.message}" for refused in report.refused]
    return "\n".join(lines)
