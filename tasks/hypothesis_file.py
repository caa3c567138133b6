"""Read a hypothesis that a person wrote: paths become contents and digests, so that the record stands alone."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from serving.documents import read_document, read_text
from serving.errors import BadInput
from serving.home import portable
from serving.scenario import load_scenario
from serving.stack import load_stack
from tasks.problem import KERNELS, Problem, load_problem, problem_of
from tasks.records import (
    CodePatch,
    Digest,
    Hypothesis,
    KernelCandidate,
    KernelTarget,
    Prediction,
    Question,
    RoleEdit,
    Scalar,
    StackEdit,
    StackTarget,
    Text,
    digest,
)


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class KernelTargetPart(Part):
    """`incumbent_launch`: launch options of the incumbent, if not its defaults.

    To ask `better service`: `stack` and `scenario`, paths relative to the hypothesis file, and `timing`, the production
    shape of the problem that the kernel has in that stack.
    """

    kind: Literal["kernel"]
    problem: Text
    incumbent_launch: dict[str, Scalar] = {}
    stack: Text | None = None
    scenario: Text | None = None
    timing: Text | None = None


class StackTargetPart(Part):
    """Paths relative to the hypothesis file."""

    kind: Literal["stack"]
    stack: Text
    scenario: Text


class KernelCandidatePart(Part):
    """`source` is a path relative to the hypothesis file; `launch` holds keyword arguments for its `run`."""

    kind: Literal["kernel_candidate"]
    source: Text
    launch: dict[str, Scalar] = {}


class StackEditPart(Part):
    kind: Literal["stack_edit"]
    roles: Annotated[dict[str, RoleEdit], Field(min_length=1)]


class CodePatchPart(Part):
    """`diff` is the path of a unified diff, relative to the hypothesis file."""

    kind: Literal["code_patch"]
    package: Text
    version: Text
    diff: Text


class Stated(Part):
    """What whoever proposes has to say, a person or a model."""

    title: Text
    rationale: Text
    question: Question
    prediction: Prediction
    mechanism: Text


class HypothesisFile(Stated):
    target: Annotated[KernelTargetPart | StackTargetPart, Field(discriminator="kind")]
    change: Annotated[KernelCandidatePart | StackEditPart | CodePatchPart, Field(discriminator="kind")]
    origin: Literal["person", "catalogue", "sampler", "model"] = "person"
    parent: Digest | None = None


def load_hypothesis(path: Path) -> Hypothesis:
    """The hypothesis in a YAML file, with the sources it names. Raises `BadInput`."""
    return hypothesis_of(read_document(path, HypothesisFile), path.resolve().parent)


def hypothesis_of(written: HypothesisFile, folder: Path) -> Hypothesis:
    """What somebody wrote, with the sources it names; its paths are relative to `folder`. Raises `BadInput`."""
    target = _target(written, folder)
    change = _change(written, folder)
    if isinstance(change, KernelCandidate) != isinstance(target, KernelTarget):
        raise BadInput(
            f"a change of kind `{change.kind}` does not fit a target of kind `{target.kind}` in `{written.title}`",
            "a kernel target takes a kernel_candidate, a stack target a stack_edit or code_patch",
        )
    if isinstance(target, KernelTarget) and isinstance(change, KernelCandidate):
        problem = problem_of(target)
        for arm in (problem.incumbent, change):
            problem.tuned(arm)
    shared = written.model_dump(exclude={"target", "change", "prediction"})
    return Hypothesis(target=target, change=change, prediction=written.prediction, **shared)


def _target(written: HypothesisFile, folder: Path) -> KernelTarget | StackTarget:
    match written.target:
        case KernelTargetPart(problem=name, incumbent_launch=launch) as part:
            problem = load_problem((folder / name).resolve() if "/" in name else name)
            named = problem.folder.name if problem.folder.parent == KERNELS else portable(problem.folder)
            incumbent, runs_on = digest(problem.incumbent.source), problem.definition.runs_on
            return KernelTarget(
                problem=named,
                incumbent_digest=incumbent,
                incumbent_launch=launch,
                runs_on=runs_on,
                service=_service(written.question, part, problem, folder),
                timing=part.timing,
            )
        case StackTargetPart(stack=stack, scenario=scenario):
            return _stack(stack, scenario, folder)


def _stack(stack: str, scenario: str, folder: Path) -> StackTarget:
    spec = load_stack(folder / stack)
    load_scenario(folder / scenario)
    return StackTarget(
        stack=portable(folder / stack), scenario=portable(folder / scenario), incumbent_digest=spec.digest
    )


def _service(question: Question, part: KernelTargetPart, problem: Problem, folder: Path) -> StackTarget | None:
    """Where a kernel shall be tried in a service. Raises BadInput unless all that it takes is there."""
    timings = [timing.name for timing in problem.workloads.timings]
    if part.timing is not None and part.timing not in timings:
        raise BadInput(f"`target.timing`: `{part.timing}` is no timing of `{problem.name}`", f"its timings: {timings}")
    if part.stack is not None and part.scenario is not None:
        splice = problem.definition.splice
        if splice is None or splice.patch is None:
            raise BadInput(
                f"`{problem.name}` does not say how a kernel reaches the engine", "its definition needs `splice.patch`"
            )
        return _stack(part.stack, part.scenario, folder)
    if part.stack is not None or part.scenario is not None or question is Question.BETTER_SERVICE:
        raise BadInput(
            "a kernel is tried in a service by `target.stack` and `target.scenario` together",
            f"give both to ask `{Question.BETTER_SERVICE}`, or neither and ask `{Question.FASTER_KERNEL}`",
        )
    return None


def _change(written: HypothesisFile, folder: Path) -> KernelCandidate | StackEdit | CodePatch:
    match written.change:
        case KernelCandidatePart(source=source, launch=launch):
            text = read_text(folder / source)
            return KernelCandidate(source_name=Path(source).name, source=text, launch=launch)
        case StackEditPart(roles=roles):
            return StackEdit(roles=roles)
        case CodePatchPart(package=package, version=version, diff=diff):
            return CodePatch(package=package, version=version, diff=read_text(folder / diff))
