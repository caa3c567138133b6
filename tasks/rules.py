"""Which file judges which rung of an experiment."""

from pydantic import BaseModel

from serving.home import located
from serving.scenario import Scenario
from tasks.criteria import Criteria, load_criteria
from tasks.problem import load_problem
from tasks.records import Experiment, KernelTarget, Rung


def rules_of(experiment: Experiment) -> dict[Rung, Criteria[BaseModel]]:
    """The criteria that people wrote for the target of this experiment, by rung: a scenario judges what a service does."""
    target, deployed = experiment.hypothesis.target, experiment.hypothesis.deployed
    scenario: Criteria[BaseModel] | None = load_criteria(located(deployed.scenario), Scenario) if deployed else None
    problem = load_problem(target.problem).criteria if isinstance(target, KernelTarget) else None
    first, last = problem or scenario, scenario or problem
    return {rung: found for rung in Rung if (found := last if rung is Rung.SERVICE else first) is not None}
