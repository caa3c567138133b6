"""The manual trigger: one hypothesis from the Prefect UI, by the name of its file or written into the form."""

from typing import Annotated

from prefect import flow
from pydantic import Field

from flows.experiment import climb
from flows.labels import experiment_tags, label
from flows.pools import cancel_children
from serving.errors import BadInput
from serving.home import REPOSITORY, located
from tasks.hypothesis_file import HypothesisFile, hypothesis_of, load_hypothesis
from tasks.ledger import default_url
from tasks.opening import new_experiment
from tasks.records import Experiment, Hypothesis, Rung

FileName = Annotated[
    str,
    Field(
        title="File",
        description="A hypothesis file of the repository, such as kernels/kda_decode/hypotheses/hoist_gate.yaml",
    ),
]


@flow(
    name="experiment",
    flow_run_name="manual trigger",
    persist_result=False,
    on_cancellation=[cancel_children],
    on_crashed=[cancel_children],
)
def one_hypothesis(
    hypothesis: FileName | HypothesisFile, upto: Rung | None = None, budget_s: float | None = None
) -> Experiment:
    """Take one hypothesis to its verdict. Its records go to the ledger of the machine that runs this flow.

    Args:
        hypothesis: the name of a file in the repository, or the hypothesis itself; paths in it are then relative to
            the repository.
        upto: visit no dearer rung than this one.
        budget_s: start no rung after so many seconds.
    """
    experiment = new_experiment(asked(hypothesis), default_url(), upto, budget_s)
    label(*experiment_tags(experiment), name=experiment.hypothesis.title)
    return climb(experiment, default_url())


def asked(hypothesis: str | HypothesisFile) -> Hypothesis:
    """Raises `BadInput` for a file that is none, or lies outside of the repository."""
    if isinstance(hypothesis, HypothesisFile):
        return hypothesis_of(hypothesis, REPOSITORY)
    path = located(hypothesis)
    if not path.resolve().is_relative_to(REPOSITORY):
        raise BadInput(f"`{hypothesis}` lies outside of the repository", "name a file in it, or fill in the form")
    return load_hypothesis(path)
