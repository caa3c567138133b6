"""The flow: stages in order, early returns, artifacts, and no fault of ours as a verdict on a hypothesis."""

import signal
from pathlib import Path

import pytest
from examples import block, build, evidence, experiment, kernel_hypothesis
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.exceptions import TerminationSignal

from flows.experiment import run_experiment
from serving.errors import Broken
from tasks import stages
from tasks.history import attempts, latest, refusals
from tasks.ledger import Ledger
from tasks.plan import make_plan
from tasks.records import Arm, Build, Evidence, Experiment, Outcome, Question, RefusedFor, Rung

pytestmark = [
    pytest.mark.flow,
    pytest.mark.usefixtures("prefect_server"),
    pytest.mark.filterwarnings("ignore"),  # of Prefect's own
]


@pytest.fixture
def visited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for build and the rungs; tests replace one of them. Returns what ran, in order."""
    ran: list[str] = []

    def built(view: Experiment, book: Ledger) -> Build:
        ran.append("build")
        return build(view.hypothesis)

    def numerics(view: Experiment, book: Ledger) -> Evidence:
        ran.append("numerics")
        return evidence(Rung.NUMERICS, *(block(arm, "out_rel_error", 1e-7) for arm in Arm))

    def microbench(view: Experiment, book: Ledger) -> Evidence:
        ran.append("microbench")
        return evidence(Rung.MICROBENCH, not_run="no GPU", engagement=())

    monkeypatch.setattr(stages, "build", built)
    monkeypatch.setitem(stages.MEASURES, Rung.NUMERICS, numerics)
    monkeypatch.setitem(stages.MEASURES, Rung.MICROBENCH, microbench)
    return ran


def asked(question: Question, problem: str = "kda_decode") -> Experiment:
    view = experiment(kernel_hypothesis(question))
    target = view.hypothesis.target.model_copy(update={"problem": problem})
    hypothesis = view.hypothesis.model_copy(update={"target": target})
    plan = make_plan(hypothesis)
    return Experiment(hypothesis_id=hypothesis.id, attempt="20260101T000000Z-aaaaaa", hypothesis=hypothesis, plan=plan)


def test_a_verdict_ends_the_flow_and_everything_is_in_ledger_and_artifacts(tmp_path: Path, visited: list[str]) -> None:
    url = f"file://{tmp_path}/ledger"
    ended = run_experiment(asked(Question.SAME_RESULTS), url)
    assert visited == ["build", "numerics"]
    assert ended.verdict is not None
    assert ended.verdict.outcome is Outcome.PASSED
    assert latest(Ledger(url), ended.hypothesis_id) == ended
    with get_client(sync_client=True) as client:
        kinds = {
            prefix: client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(like_=f"{prefix}%")))
            for prefix in ("experiment", "findings")
        }
    assert any("PASSED: hoist the gate" in str(found.data) for found in kinds["experiment"])
    assert kinds["findings"]


def test_a_fault_of_ours_ends_broken_with_its_reason(
    tmp_path: Path, visited: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(view: Experiment, book: Ledger) -> Evidence:
        raise Broken("kernel process was killed", "run it again")

    monkeypatch.setitem(stages.MEASURES, Rung.NUMERICS, killed)
    ended = run_experiment(asked(Question.SAME_RESULTS), f"file://{tmp_path}/ledger")
    assert ended.verdict is not None
    assert ended.verdict.outcome is Outcome.BROKEN
    assert "kernel process was killed" in ended.verdict.reason
    assert latest(Ledger(f"file://{tmp_path}/ledger"), ended.hypothesis_id).build is not None


def test_an_unexpected_error_is_broken_too(tmp_path: Path, visited: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(view: Experiment, book: Ledger) -> Evidence:
        raise ZeroDivisionError("oops")

    monkeypatch.setitem(stages.MEASURES, Rung.NUMERICS, defect)
    ended = run_experiment(asked(Question.SAME_RESULTS), f"file://{tmp_path}/ledger")
    assert ended.verdict is not None
    assert ended.verdict.outcome is Outcome.BROKEN
    assert "ZeroDivisionError" in ended.verdict.reason


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, TerminationSignal])
def test_an_interrupt_is_recorded_and_passed_on(
    interrupt: type[BaseException], tmp_path: Path, visited: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefect raises an exception of its own for SIGTERM, which is none of `Exception`."""

    def interrupted(view: Experiment, book: Ledger) -> Evidence:
        raise interrupt(signal.SIGTERM)

    monkeypatch.setitem(stages.MEASURES, Rung.NUMERICS, interrupted)
    view = asked(Question.SAME_RESULTS)
    with pytest.raises(interrupt):
        stages.run_stage("microbench", view.with_record(build(view.hypothesis)), f"file://{tmp_path}/ledger")
    (entry,) = Ledger(f"file://{tmp_path}/ledger").read().entries
    assert entry.record["outcome"] == "BROKEN"
    assert "interrupted" in entry.record["reason"]


def test_a_measurement_asked_for_twice_is_made_twice(tmp_path: Path, visited: list[str]) -> None:
    for _ in range(2):
        run_experiment(asked(Question.SAME_RESULTS), f"file://{tmp_path}/ledger")
    assert visited.count("numerics") == 2


def test_what_is_not_worth_a_build_ends_before_one_with_its_refusal_in_the_ledger(
    tmp_path: Path, visited: list[str]
) -> None:
    url, view = f"file://{tmp_path}/ledger", asked(Question.SAME_RESULTS)
    empty = view.hypothesis.model_copy(update={"mechanism": "it is faster"})
    refused = view.model_copy(update={"hypothesis": empty, "hypothesis_id": empty.id})
    ended = run_experiment(refused, url)
    assert not visited
    assert ended.verdict is None
    assert ended.refusal is not None
    assert ended.refusal.reason is RefusedFor.EMPTY_MECHANISM
    run_experiment(refused, url)
    contents = Ledger(url).read()
    assert [entry.kind for entry in contents.entries] == ["refusal"], "asked again it is the same refusal"
    assert refusals(contents) == [ended.refusal]
    assert not attempts(contents)
    with get_client(sync_client=True) as client:
        key = ArtifactFilterKey(any_=[f"experiment-{empty.id[:16]}"])
        (shown, *_) = client.read_artifacts(artifact_filter=ArtifactFilter(key=key))
    assert "REFUSED" in str(shown.data)


def test_a_model_may_not_have_a_settled_change_tried_again_and_a_person_may(tmp_path: Path, visited: list[str]) -> None:
    url, view = f"file://{tmp_path}/ledger", asked(Question.SAME_RESULTS)
    run_experiment(view, url)
    by_model = view.hypothesis.model_copy(update={"origin": "model"})
    again = run_experiment(view.model_copy(update={"hypothesis": by_model, "hypothesis_id": by_model.id}), url)
    assert again.refusal is not None
    assert view.hypothesis_id[:12] in again.refusal.says
    assert "PASSED" in again.refusal.says
    assert run_experiment(view, url).verdict is not None
    assert visited.count("build") == 2
