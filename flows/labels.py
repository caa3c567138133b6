"""Names and tags by which people find flow runs: the hypothesis, its question, the rungs that it visited, the outcome."""

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from tasks.plan import stage_steps
from tasks.records import Experiment


def stage_tags(experiment: Experiment, stage: str, pool: str) -> list[str]:
    """What is known of a stage's run before it starts."""
    rungs = [] if stage == "build" else [s.rung for s in stage_steps(experiment.plan, stage) if s.pool == pool]
    return [f"question:{experiment.hypothesis.question}", *(f"rung:{rung}" for rung in rungs)]


def experiment_tags(experiment: Experiment) -> list[str]:
    """Question, rungs with evidence, and the outcome or the reason for a refusal once there is one."""
    tags = [f"question:{experiment.hypothesis.question}"]
    tags += dict.fromkeys(f"rung:{evidence.rung}" for evidence in experiment.evidence)
    tags += [f"refused:{experiment.refusal.reason}"] if experiment.refusal else []
    return [*tags, f"outcome:{experiment.verdict.outcome}"] if experiment.verdict else tags


def label(*tags: str, name: str | None = None) -> None:
    """Add tags to the present flow run, and give it a name that was not known when it started."""
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run.id, name=name, tags=sorted({*flow_run.tags, *tags}))
