"""The propose stage as a task of its own, and the flow that takes the best proposal up the ladder."""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.blocks.system import Secret
from prefect.cache_policies import NO_CACHE

from flows.experiment import run_experiment
from flows.labels import label
from flows.pools import cancel_children
from tasks.ledger import Ledger, default_url
from tasks.opening import new_experiment
from tasks.proposals import Proposals, best
from tasks.proposals_text import proposals_markdown
from tasks.propose import ask_for
from tasks.records import Experiment, Record, Rung, digest

N = 3
KEY_BLOCK = "model-key"


class Proposed(Record):
    """`experiment`: of the best accepted proposal; None if none was accepted."""

    proposals: Proposals
    experiment: Experiment | None


def propose(target: str, n: int, ledger_url: str) -> Proposals:
    """Ask the model that the environment names, here: its key is no parameter, so no flow run holds it."""
    proposals = ask_for(target, n, Ledger(ledger_url), with_key(os.environ))
    create_markdown_artifact(
        proposals_markdown(proposals), key=f"proposals-{digest(target)[:16]}", description=f"Proposals for {target}"
    )
    return proposals


def with_key(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the key from the secret block `model-key`, if it has none itself and there is such a block."""
    known = dict(environment)
    if not (known.get("ANTHROPIC_API_KEY") or known.get("ANTHROPIC_AUTH_TOKEN")):
        with suppress(ValueError):  # no such block: whoever asks is told that there is no key
            block: Any = Secret.load(KEY_BLOCK, _sync=True)  # type: ignore[call-arg]  # of its dispatch to async or not
            known["ANTHROPIC_API_KEY"] = block.get()
    return known


# Asking is never answered from a cache; it tries again by itself, and counts every try.
propose_task = task(
    name="propose", task_run_name="propose for {target}", cache_policy=NO_CACHE, retries=0, persist_result=False
)(propose)


@flow(
    name="propose",
    flow_run_name="propose for {target}",
    persist_result=False,
    on_cancellation=[cancel_children],
    on_crashed=[cancel_children],
)
def propose_and_run(
    target: str, n: int = N, ledger_url: str | None = None, upto: Rung | None = None, budget_s: float | None = None
) -> Proposed:
    """Ask a model about a target and take its best accepted proposal to a verdict.

    Args:
        target: the folder of a kernel problem, or STACK.yaml@SCENARIO.yaml, relative to the repository.
        n: how many proposals to ask for.
        ledger_url: where records are kept; by default the ledger of the machine that runs this flow.
        upto: visit no dearer rung than this one.
        budget_s: start no rung after so many seconds.
    """
    url = ledger_url or default_url()
    proposals = propose_task(target, n, url)
    label(f"accepted:{len(proposals.accepted)}", f"refused:{len(proposals.refused)}")
    chosen = best(proposals)
    if chosen is None:
        return Proposed(proposals=proposals, experiment=None)
    return Proposed(proposals=proposals, experiment=run_experiment(new_experiment(chosen, url, upto, budget_s), url))
