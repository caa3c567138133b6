"""The one place that decides where a stage runs. Now: as a task in the flow's own process."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.records import Experiment
from tasks.stages import open_experiment, run_stage


def stage(name: str, experiment: Experiment, ledger_url: str) -> Experiment:
    if name == "propose":
        return open_experiment(experiment, ledger_url)
    return run_stage(name, experiment, ledger_url)


# A measurement is never answered from a cache and never retried.
stage_task = task(name="stage", task_run_name="{name}", cache_policy=NO_CACHE, retries=0, persist_result=False)(stage)


def dispatch(name: str, experiment: Experiment, ledger_url: str) -> Experiment:
    """Run one stage and wait for it. Raises what the stage raises."""
    return stage_task(name, experiment, ledger_url)
