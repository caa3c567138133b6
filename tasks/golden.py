"""Golden experiments: hypotheses whose verdicts are known, in chains. They go through the stages of a real run, on a ledger
that is thrown away.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from serving.documents import read_document
from serving.engine_env import engine
from serving.errors import Broken
from serving.home import located
from serving.scratch import scratch
from tasks.hypothesis_file import load_hypothesis
from tasks.microbench import gpu
from tasks.opening import admit
from tasks.plan import make_plan
from tasks.records import Experiment, Outcome, Record, Text
from tasks.report import verdict_text
from tasks.stages import run_stage

STAGES = ("build", "microbench", "validate", "deploy")


class GoldenStep(BaseModel):
    """`hypothesis`: a path from the root of the repository. `says`: patterns that the printed verdict must hold.

    `without_gpu`: what is known of it is that it cannot be answered here; with a GPU it is left out. `needs`: it does not
    run where that is missing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Text
    hypothesis: Text
    outcome: Outcome
    says: tuple[str, ...] = ()
    quick: bool = False
    without_gpu: bool = False
    needs: Literal["engine"] | None = None


class Golden(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: Annotated[tuple[GoldenStep, ...], Field(min_length=1)]


class GoldenResult(Record):
    """`given` is the outcome, and what the verdict should say and does not. `not_run`: why it did not run, which is no
    fault of the evaluator."""

    name: str
    expected: str
    given: str
    not_run: str | None = None

    @property
    def equal(self) -> bool:
        return self.not_run is None and self.expected == self.given


def load_golden(folder: Path) -> tuple[GoldenStep, ...]:
    """The steps in golden.yaml, in order. Raises BadInput."""
    steps = read_document(folder / "golden.yaml", Golden).steps
    return tuple(step for step in steps if not (step.without_gpu and gpu() is not None))


def run_golden(step: GoldenStep, say: Callable[[str], None]) -> GoldenResult:
    """Run one hypothesis to its verdict. Raises Broken for a fault of ours, which no golden experiment expects."""
    lacking = _lacking(step)
    if lacking is not None:
        say(f"not run {step.name}: {lacking}")
        return GoldenResult(name=step.name, expected=step.outcome, given="not run", not_run=lacking)
    with scratch() as folder:
        ended = _run(located(step.hypothesis), f"file://{folder}/ledger")
    verdict = ended.verdict
    if verdict is None or (verdict.outcome is Outcome.BROKEN and step.outcome is not Outcome.BROKEN):
        refused = f"it was refused: {ended.refusal.says}" if ended.refusal else "it ended without a verdict"
        why = verdict.reason if verdict else refused
        raise Broken(f"the golden experiment `{step.name}` is broken: {why}", "repair this before anything is judged")
    text = verdict_text(ended)
    missing = [pattern for pattern in step.says if not re.search(pattern, text)]
    given = " ".join([verdict.outcome, *(f"without `{pattern}`" for pattern in missing)])
    result = GoldenResult(name=step.name, expected=step.outcome, given=given)
    say(f"{'ok    ' if result.equal else 'WRONG '} {step.name}: {given}")
    return result


def _lacking(step: GoldenStep) -> str | None:
    """What this machine lacks for the step, or None."""
    if step.needs is None:
        return None
    try:
        engine()
    except Broken as missing:
        return f"{missing.message} (hint: {missing.hint})"
    return None


def _run(path: Path, ledger_url: str) -> Experiment:
    """What `flows/experiment.py` does, without Prefect."""
    hypothesis = load_hypothesis(path)
    plan = make_plan(hypothesis)
    experiment = Experiment(hypothesis_id=hypothesis.id, attempt="golden", hypothesis=hypothesis, plan=plan)
    experiment = admit(experiment, ledger_url)
    for stage in STAGES:
        if experiment.verdict is None and experiment.refusal is None:
            experiment = run_stage(stage, experiment, ledger_url)
    return experiment
