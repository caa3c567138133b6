"""The one place that decides where a stage runs: in the flow's own process, or as a flow run on each pool that it visits.

INFRA_AGENT_PROFILE says which: `local` (the default) or `pools`. Flows do not know the difference.
"""

import os

from prefect import task
from prefect.cache_policies import NO_CACHE

from flows.pools import run_on_pool
from serving.errors import BadInput
from tasks.opening import admit
from tasks.plan import stage_pools
from tasks.records import Experiment
from tasks.stages import run_stage

PROFILES = ("local", "pools")


def profile() -> str:
    """Raises `BadInput` for a profile that is none."""
    chosen = os.environ.get("INFRA_AGENT_PROFILE") or "local"
    if chosen not in PROFILES:
        raise BadInput(f"INFRA_AGENT_PROFILE is `{chosen}`", f"use one of {', '.join(PROFILES)}")
    return chosen


def stage(name: str, experiment: Experiment, ledger_url: str, pool: str | None = None) -> Experiment:
    if name == "propose":
        return admit(experiment, ledger_url)
    return run_stage(name, experiment, ledger_url, pool)


# A measurement is never answered from a cache and never retried.
stage_task = task(name="stage", task_run_name="{name}", cache_policy=NO_CACHE, retries=0, persist_result=False)(stage)


def dispatch(name: str, experiment: Experiment, ledger_url: str) -> Experiment:
    """Run one stage and wait for it. Raises what the stage raises."""
    if name == "propose" or profile() == "local":
        return stage_task(name, experiment, ledger_url)
    for pool in stage_pools(experiment.plan, name):
        experiment = run_on_pool(name, pool, experiment, ledger_url)
        if experiment.verdict:
            break
    return experiment
