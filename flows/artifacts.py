"""What a flow run leaves in the Prefect UI: a summary in markdown and a table of findings."""

from prefect.artifacts import create_markdown_artifact, create_table_artifact

from tasks.records import Experiment
from tasks.report import findings_table, summary


def publish(experiment: Experiment) -> Experiment:
    """Attach the artifacts to the present flow run and give the experiment back."""
    key = experiment.hypothesis_id[:16]
    create_markdown_artifact(summary(experiment), key=f"experiment-{key}", description=experiment.hypothesis.title)
    rows = findings_table(experiment)
    if rows:
        create_table_artifact(rows, key=f"findings-{key}", description=f"Findings: {experiment.hypothesis.title}")
    return experiment
