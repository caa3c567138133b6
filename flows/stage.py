"""The four stages as flows of their own, one for each deployment of a pool (prefect.yaml)."""

from collections.abc import Iterator
from contextlib import contextmanager

from prefect import flow
from prefect.concurrency.sync import concurrency

from flows.dispatch import stage_task
from flows.labels import label
from tasks.history import attempt_of
from tasks.ledger import Ledger

LEASE_S = 60  # the least that Prefect takes: so soon a slot is free again whose holder was killed


def run_part(stage: str, pool: str, hypothesis_id: str, attempt: str, ledger_url: str) -> str:
    """The rungs of one stage that belong to this pool. The experiment comes from the ledger, and records go there.

    Returns the outcome, or that the experiment goes on.
    """
    experiment = attempt_of(Ledger(ledger_url), hypothesis_id, attempt)
    with device_of(pool):
        ended = stage_task(stage, experiment, ledger_url, pool)
    if ended.verdict is None:
        return "goes on"
    label(f"outcome:{ended.verdict.outcome}")
    return ended.verdict.outcome.value


@contextmanager
def device_of(pool: str) -> Iterator[None]:
    """Hold a device of a GPU pool. A limit that does not exist is an error: `infra-agent infra apply` makes it."""
    if not pool.startswith("gpu-"):
        yield
        return
    with concurrency(pool, occupy=1, strict=True, lease_duration=LEASE_S):
        yield


_stage = flow(persist_result=False)(run_part)
build, microbench, validate, deploy = (
    _stage.with_options(name=name) for name in ("build", "microbench", "validate", "deploy")
)
