"""What people see of an experiment in the UI: tags to find it by, and a picture of each measured comparison."""

import base64

import pytest
from examples import block, evidence, experiment, stack_hypothesis
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.runtime import flow_run

from flows.artifacts import publish
from flows.labels import stage_tags
from tasks.records import Arm, Experiment, Interval, Outcome, Question, Rung, Verdict

pytestmark = [
    pytest.mark.flow,
    pytest.mark.usefixtures("prefect_server"),
    pytest.mark.filterwarnings("ignore"),  # of Prefect's own
]


def measured() -> Experiment:
    """One pair of blocks, and two comparisons quoted in the verdict."""
    view = experiment(stack_hypothesis())
    seen = evidence(
        Rung.SERVICE, block(Arm.INCUMBENT, "ttft_mean_ms", 100.0), block(Arm.CANDIDATE, "ttft_mean_ms", 80.0)
    )
    intervals = tuple(
        Interval(
            observable=name,
            unit="%",
            workload="w",
            estimate=-20,
            low=-30,
            high=-10,
            confidence=0.95,
            blocks=8,
            method="m",
        )
        for name in ("ttft_mean_ms", "e2e_mean_ms")
    )
    verdict = Verdict(
        hypothesis_id=view.hypothesis_id, outcome=Outcome.INCONCLUSIVE, reason="too few", intervals=intervals
    )
    return view.with_record(seen).with_record(verdict)


def test_each_measured_comparison_has_a_picture_and_the_run_its_tags() -> None:
    @flow
    def ends() -> str:
        publish(measured())
        return str(flow_run.id)

    run_id = ends()
    with get_client(sync_client=True) as client:
        of_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run_id]))
        pictures = [found for found in client.read_artifacts(artifact_filter=of_run) if found.type == "image"]
        tags = client.read_flow_run(run_id).tags
    prefix = "data:image/png;base64,"
    assert len(pictures) == 2
    assert all(base64.b64decode(str(p.data).removeprefix(prefix)).startswith(b"\x89PNG") for p in pictures)
    assert {p.description.split(" ")[0] for p in pictures if p.description} == {"ttft_mean_ms", "e2e_mean_ms"}
    assert set(tags) == {f"question:{Question.BETTER_SERVICE}", "rung:service", "outcome:INCONCLUSIVE"}


def test_the_run_of_a_stage_is_tagged_with_the_rungs_that_it_will_visit() -> None:
    tags = stage_tags(measured(), "deploy", "gpu-deployment")
    assert tags == ["question:better service", "rung:service"]
    assert stage_tags(measured(), "build", "cpu-build") == ["question:better service"]
