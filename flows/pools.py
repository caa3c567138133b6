"""The `pools` profile, seen from the flow that waits: each part of a stage is a flow run on its pool.

Records travel through the ledger alone: the child reads the experiment there and appends, the parent reads it again.
"""

import os
from typing import Any, cast
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Cancelling

from flows.labels import stage_tags
from tasks.decide import broken
from tasks.history import attempt_of
from tasks.ledger import Ledger
from tasks.records import Experiment

POLL_S = 0.5  # Prefect's own default of 5 s would be most of what a short stage takes


def run_on_pool(stage: str, pool: str, experiment: Experiment, ledger_url: str) -> Experiment:
    """Run one stage's part for one pool there, and wait. A run that ends without finishing is a BROKEN verdict.

    Raises `Broken` if the ledger fails.
    """
    ledger = Ledger(ledger_url)
    try:
        started = run_deployment(
            f"{stage}/{pool}",
            parameters={
                "stage": stage,
                "pool": pool,
                "hypothesis_id": experiment.hypothesis_id,
                "attempt": experiment.attempt,
                "ledger_url": ledger_url,
            },
            flow_run_name=f"{stage} on {pool}: {experiment.hypothesis.title}",
            tags=stage_tags(experiment, stage, pool),
            idempotency_key=f"{experiment.hypothesis_id}/{experiment.attempt}/{stage}/{pool}",
            work_queue_name=queue_of(pool),
            poll_interval=POLL_S,
        )
    except ObjectNotFound:
        return _broken(ledger, experiment, f"no deployment is called `{stage}/{pool}` (hint: `prefect deploy --all`)")
    run = cast(FlowRun, started)  # a coroutine only if this were async
    ended = attempt_of(ledger, experiment.hypothesis_id, experiment.attempt)
    if ended.verdict or (run.state and run.state.is_completed()):
        return ended
    state = f"{run.state.name}: {run.state.message}" if run.state else "no state"
    return _broken(ledger, ended, f"the flow run `{run.name}` did not finish: {state}")


def _broken(ledger: Ledger, experiment: Experiment, reason: str) -> Experiment:
    verdict = broken(experiment, reason)
    ledger.append(experiment.hypothesis_id, experiment.attempt, verdict)
    return experiment.with_record(verdict)


def queue_of(pool: str) -> str:
    """GPU pools have a queue for each kind of hardware; INFRA_AGENT_HARDWARE names the one to ask for."""
    return (os.environ.get("INFRA_AGENT_HARDWARE") or "h200") if pool.startswith("gpu-") else "default"


def cancel_children(flow: Any, flow_run: FlowRun, state: Any) -> None:
    """Hook of every flow that waits for others: Prefect itself lets children run on when their parent has ended."""
    with get_client(sync_client=True) as client:
        _cancel_children(client, flow_run.id)


def _cancel_children(client: SyncPrefectClient, run_id: UUID) -> None:
    for child in unfinished_children(client, run_id):
        if child.deployment_id is None:  # it ran in the process that has ended
            _cancel_children(client, child.id)
            client.set_flow_run_state(child.id, Cancelled(message="the flow run that it was part of has ended"))
        else:
            client.set_flow_run_state(child.id, Cancelling())


def unfinished_children(client: SyncPrefectClient, run_id: UUID) -> list[FlowRun]:
    """Direct children of a flow run that have not ended."""
    alive = [kind for kind in StateType if kind not in TERMINAL_STATES]
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(
            parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run_id]),
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=alive)),
        )
    )
