"""What proposals are asked for: a kernel problem, or a stack under the traffic of a scenario, with its catalogue."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from serving.errors import BadInput
from serving.home import REPOSITORY, located, portable
from serving.scenario import Scenario, load_scenario
from serving.stack import StackSpec, load_stack
from tasks.criteria import Criteria, load_criteria
from tasks.hypothesis_file import load_hypothesis
from tasks.problem import KERNELS, Problem, load_problem
from tasks.records import Hypothesis, KernelTarget, Scalar, StackTarget, Target

STACK_HYPOTHESES = REPOSITORY / "serving" / "hypotheses"
BETWEEN = "@"  # STACK.yaml@SCENARIO.yaml


class KernelSubject(BaseModel):
    """`forms`: launch options of the incumbent that people compare with, its defaults first. A model may choose among
    these and no others: a crippled incumbent is easy to beat."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    problem: Problem
    forms: tuple[dict[str, Scalar], ...]
    catalogue: tuple[Hypothesis, ...]

    def about(self, target: Target) -> bool:
        return isinstance(target, KernelTarget) and target.problem == self.name


class StackSubject(BaseModel):
    """`name` is `STACK.yaml@SCENARIO.yaml`, both relative to the repository where they lie in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    stack: Path
    scenario: Path
    spec: StackSpec
    criteria: Criteria[Scenario]
    catalogue: tuple[Hypothesis, ...]

    def about(self, target: Target) -> bool:
        return isinstance(target, StackTarget) and f"{target.stack}{BETWEEN}{target.scenario}" == self.name


Subject = KernelSubject | StackSubject


def read_subject(target: str) -> Subject:
    """TARGET of the command: a kernel problem by name or folder, or `STACK.yaml@SCENARIO.yaml`. Raises `BadInput`."""
    if BETWEEN in target:
        stack, _, scenario = target.partition(BETWEEN)
        return _stack(_found(stack), _found(scenario))
    if target.endswith((".yaml", ".yml")):
        raise BadInput(
            f"`{target}` is no target: a stack needs a scenario, and a hypothesis is asked already",
            f"write STACK.yaml{BETWEEN}SCENARIO.yaml, or the folder of a kernel problem such as kernels/kda_decode",
        )
    return _kernel(target)


def _kernel(target: str) -> KernelSubject:
    folder = Path(target)
    problem = load_problem(folder.resolve() if folder.is_dir() and "/" in target else target.rstrip("/"))
    name = problem.folder.name if problem.folder.parent == KERNELS else portable(problem.folder)
    known = _hypotheses(problem.folder / "hypotheses")
    mine = tuple(x for x in known if isinstance(x.target, KernelTarget) and x.target.problem == name)
    forms: list[dict[str, Scalar]] = [{}]
    for hypothesis in mine:
        launch = hypothesis.target.incumbent_launch if isinstance(hypothesis.target, KernelTarget) else {}
        if launch not in forms:
            forms.append(launch)
    return KernelSubject(name=name, problem=problem, forms=tuple(forms), catalogue=mine)


def _stack(stack: Path, scenario: Path) -> StackSubject:
    spec = load_stack(stack)
    load_scenario(scenario)
    name = f"{portable(stack)}{BETWEEN}{portable(scenario)}"
    subject = StackSubject(
        name=name,
        stack=stack,
        scenario=scenario,
        spec=spec,
        criteria=load_criteria(scenario, Scenario),
        catalogue=(),
    )
    mine = tuple(x for x in _hypotheses(STACK_HYPOTHESES) if subject.about(x.target))
    return subject.model_copy(update={"catalogue": mine})


def _found(path: str) -> Path:
    """Relative to where the command runs, else to the repository."""
    return Path(path).resolve() if Path(path).exists() else located(path)


def _hypotheses(folder: Path) -> Sequence[Hypothesis]:
    """The files that are hypotheses, by name; one that is none is the campaign's to report, and stops no proposal."""
    found = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            found.append(load_hypothesis(path))
        except BadInput:
            continue
    return found
