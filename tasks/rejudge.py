"""Stored evidence under other criteria: one experiment, or which past verdicts would change."""

from pathlib import Path

from pydantic import BaseModel

from serving.documents import read_mapping
from serving.scenario import Scenario
from tasks.criteria import Criteria, CriteriaFile, load_criteria
from tasks.decide import decide
from tasks.judgement import Rules
from tasks.records import Experiment, KernelTarget, Record, Rung, Verdict
from tasks.rules import rules_of


class Rejudged(Record):
    """`changes`: the outcome is another one than was stored."""

    experiment: Experiment
    verdict: Verdict

    @property
    def changes(self) -> bool:
        return self.experiment.verdict is None or self.experiment.verdict.outcome is not self.verdict.outcome


def load_any_criteria(path: Path) -> Criteria[BaseModel]:
    """A scenario or the criteria of a kernel problem, told apart by what is in the file. Raises BadInput."""
    model: type[BaseModel] = Scenario if "traffic" in read_mapping(path) else CriteriaFile
    return load_criteria(path, model)


def fits(experiment: Experiment, criteria: Criteria[BaseModel]) -> bool:
    """Whether the criteria are of a kind that judges this experiment's target."""
    if isinstance(criteria.values, CriteriaFile):
        return isinstance(experiment.hypothesis.target, KernelTarget)
    return experiment.hypothesis.deployed is not None


def rules_under(experiment: Experiment, criteria: Criteria[BaseModel]) -> Rules:
    """The criteria for the rungs that they are for; a kernel that is tried in a service keeps its own for the others."""
    if not isinstance(experiment.hypothesis.target, KernelTarget) or experiment.hypothesis.deployed is None:
        return criteria
    of_kernel = isinstance(criteria.values, CriteriaFile)
    return {
        rung: own if (rung is Rung.SERVICE) == of_kernel else criteria for rung, own in rules_of(experiment).items()
    }


def rejudge(experiment: Experiment, rules: Rules) -> Verdict | None:
    """The verdict that the stored evidence forces; the stored one where a fault of ours ended the experiment."""
    return decide(experiment.model_copy(update={"verdict": None}), rules) or experiment.verdict


def rejudge_all(experiments: list[Experiment], criteria: Criteria[BaseModel]) -> list[Rejudged]:
    """Every experiment that the criteria fit and that has a verdict, in order."""
    found = []
    for experiment in experiments:
        verdict = rejudge(experiment, rules_under(experiment, criteria)) if fits(experiment, criteria) else None
        if verdict is not None:
            found.append(Rejudged(experiment=experiment, verdict=verdict))
    return found
