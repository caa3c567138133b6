"""What a flow run leaves in the Prefect UI: a summary with links, a table of findings, and a picture of each comparison."""

import base64

from prefect.artifacts import create_image_artifact, create_markdown_artifact, create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.client.schemas.sorting import FlowRunSort
from prefect.runtime import flow_run
from prefect.utilities.urls import url_for

from flows.labels import experiment_tags, label
from tasks.campaign import CampaignReport, report_text
from tasks.picture import comparison_png
from tasks.records import Experiment
from tasks.report import findings_table, interval_text, summary


def publish(experiment: Experiment) -> Experiment:
    """Attach artifacts and tags to the present flow run and give the experiment back."""
    key = experiment.hypothesis_id[:16]
    create_markdown_artifact(
        summary(experiment) + _child_runs(), key=f"experiment-{key}", description=experiment.hypothesis.title
    )
    rows = findings_table(experiment)
    if rows:
        create_table_artifact(rows, key=f"findings-{key}", description=f"Findings: {experiment.hypothesis.title}")
    for number, interval in enumerate(experiment.verdict.intervals if experiment.verdict else (), 1):
        picture = base64.b64encode(comparison_png(experiment, interval)).decode()
        create_image_artifact(
            f"data:image/png;base64,{picture}", key=f"comparison-{key}-{number}", description=interval_text(interval)
        )
    label(*experiment_tags(experiment))
    return experiment


def publish_campaign(report: CampaignReport) -> CampaignReport:
    """Attach the summary to the present flow run and give it back."""
    create_markdown_artifact(report_text(report) + _child_runs(), key="campaign", description=report.title)
    return report


def _child_runs() -> str:
    """Links to the flow runs that the present one started: stages on pools, or experiments of a campaign."""
    with get_client(sync_client=True) as client:
        children = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[flow_run.id])),
            sort=FlowRunSort.START_TIME_ASC,
        )
    rows = [
        f"| [{child.name.replace('|', '/')}]({url_for('flow-run', obj_id=child.id)}) | {child.state_name} | "
        f"{child.total_run_time.total_seconds():.1f} s |"
        for child in children
    ]
    return "\n".join(["", "", "| run | state | took |", "|---|---|---|", *rows]) if rows else ""
