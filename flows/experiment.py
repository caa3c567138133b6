"""One hypothesis from proposal to verdict: propose → build → cheap microbench → targeted validation → full deployment.

Each stage gives the experiment back with what it found. The first verdict ends it, so a question that a compiler can
answer never waits for a deployment. What is not worth a build is refused before one.
"""

from prefect import flow

from flows.artifacts import publish
from flows.dispatch import dispatch
from flows.pools import cancel_children
from tasks.records import Experiment


def climb(experiment: Experiment, ledger_url: str) -> Experiment:
    """Raises `Broken` when the ledger cannot be written; every other fault of ours is a BROKEN verdict."""
    proposed = dispatch("propose", experiment, ledger_url)
    if proposed.refusal:
        return publish(proposed)

    built = dispatch("build", proposed, ledger_url)
    if built.verdict:
        return publish(built)

    benched = dispatch("microbench", built, ledger_url)
    if benched.verdict:
        return publish(benched)

    validated = dispatch("validate", benched, ledger_url)
    if validated.verdict:
        return publish(validated)

    return publish(dispatch("deploy", validated, ledger_url))


run_experiment = flow(
    name="experiment",
    flow_run_name="{experiment.hypothesis.title}",
    persist_result=False,
    on_cancellation=[cancel_children],
    on_crashed=[cancel_children],
)(climb)
