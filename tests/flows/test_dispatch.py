"""Which stage runs where is decided in one place, by the profile alone."""

import pytest
from examples import build, experiment, kernel_hypothesis

from flows import dispatch as module
from flows.dispatch import dispatch, profile
from flows.manual import asked
from flows.pools import queue_of
from serving.errors import BadInput
from serving.home import REPOSITORY
from tasks.decide import broken
from tasks.hypothesis_file import HypothesisFile, load_hypothesis
from tasks.records import Experiment, Question

HOIST = "kernels/kda_decode/hypotheses/hoist_gate.yaml"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What goes to pools in the `pools` profile: (stage, pool) in order."""
    parts: list[tuple[str, str]] = []

    def on_pool(stage: str, pool: str, view: Experiment, ledger_url: str) -> Experiment:
        parts.append((stage, pool))
        return view

    monkeypatch.setattr(module, "run_on_pool", on_pool)
    monkeypatch.setenv("INFRA_AGENT_PROFILE", "pools")
    return parts


def test_a_stage_with_rungs_of_two_pools_is_two_runs_in_order(sent: list[tuple[str, str]]) -> None:
    dispatch("microbench", experiment(kernel_hypothesis(Question.FASTER_KERNEL)), "file:///nowhere")
    assert sent == [("microbench", "cpu-build"), ("microbench", "gpu-microbench")]


def test_a_verdict_of_the_first_part_keeps_the_second_from_starting(
    sent: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(stage: str, pool: str, view: Experiment, ledger_url: str) -> Experiment:
        sent.append((stage, pool))
        return view.with_record(broken(view, "the compiler was killed"))

    monkeypatch.setattr(module, "run_on_pool", ends)
    ended = dispatch("microbench", experiment(kernel_hypothesis(Question.FASTER_KERNEL)), "file:///nowhere")
    assert sent == [("microbench", "cpu-build")]
    assert ended.verdict


def test_a_stage_that_the_plan_does_not_name_visits_no_pool(sent: list[tuple[str, str]]) -> None:
    view = experiment()
    assert dispatch("validate", view.with_record(build(view.hypothesis)), "file:///nowhere").verdict is None
    assert not sent


def test_an_unknown_profile_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFRA_AGENT_PROFILE", "pool")
    with pytest.raises(BadInput, match="`pool`"):
        profile()
    monkeypatch.delenv("INFRA_AGENT_PROFILE")
    assert profile() == "local"


def test_only_gpu_pools_have_a_queue_for_each_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFRA_AGENT_HARDWARE", raising=False)
    assert (queue_of("gpu-microbench"), queue_of("cpu-build")) == ("h200", "default")
    monkeypatch.setenv("INFRA_AGENT_HARDWARE", "cpu")
    assert (queue_of("gpu-microbench"), queue_of("cpu-build")) == ("cpu", "default")


def test_the_manual_trigger_takes_the_name_of_a_file_or_the_hypothesis_itself() -> None:
    from serving.documents import read_document

    written = read_document(REPOSITORY / HOIST, HypothesisFile)
    inline = written.model_copy(
        update={"change": written.change.model_copy(update={"source": "kernels/kda_decode/hoist_gate.py"})}
    )
    assert asked(HOIST).id == asked(inline).id == load_hypothesis(REPOSITORY / HOIST).id


@pytest.mark.parametrize("name", ["/etc/passwd", "../../../etc/passwd"])
def test_the_manual_trigger_reads_no_file_outside_of_the_repository(name: str) -> None:
    with pytest.raises(BadInput, match="outside of the repository"):
        asked(name)
