"""Code in the candidate of a service run: what proves that it runs, and only there."""

from dataclasses import replace
from pathlib import Path

import pytest
from fake_witness import told
from service_setup import INFO, Setup, known_noise, requests_of, values

from serving.engine_env import Engine
from serving.errors import Broken
from serving.overlay import Overlay
from serving.scenario import Scenario
from tasks.criteria import load_criteria
from tasks.judge_service import judge_service
from tasks.records import (
    Arm,
    CodePatch,
    Hypothesis,
    Interval,
    Outcome,
    digest,
)
from tasks.service import measure_service
from tasks.service_code import Code, build_patch

PATH, FUNCTION = "pack/mod.py", "pack.mod:f"


OURS = Overlay({PATH: b"def f(): ...\n"}, counted=(FUNCTION,))


ALONE = Interval(
    observable="time_us", unit="%", workload="shape", estimate=-80, low=-82, high=-78, confidence=0.95, blocks=9, method="m"
)  # fmt: skip


def patching(setup: Setup) -> Hypothesis:
    change = CodePatch(package="pack", version="1", diff="d")
    return Hypothesis.model_validate(setup.hypothesis().model_dump() | {"change": change})


def engaged(setup: Setup, folder: Path, calls: int = 5, modules: dict[str, str] | None = None) -> None:
    """Both arms' processes, as they would tell; the arms run one stack."""
    own = {"pack.mod": OURS.digests[PATH]} if modules is None else modules
    for arm, seen in ((Arm.INCUMBENT, {"pack.mod": digest("as installed")}), (Arm.CANDIDATE, own)):
        setup.engines[arm].info = INFO[Arm.INCUMBENT]
        setup.witnesses[arm] = told(folder / arm, seen, {FUNCTION: (calls, 1000 * calls)})


def test_code_that_runs_in_the_candidate_alone_is_proved_and_its_gain_is_predicted_first(
    setup: Setup, tmp_path: Path
) -> None:
    engaged(setup, tmp_path)
    evidence = measure_service(patching(setup), recall=known_noise, code=Code(OURS, ALONE))
    assert [(p.arm, p.what, p.proved) for p in evidence.engagement] == [
        (Arm.CANDIDATE, f"server.code.{PATH}", True),
        (Arm.INCUMBENT, f"server.code.{PATH}", True),
        (Arm.CANDIDATE, f"server.calls.{FUNCTION}", True),
    ]
    assert evidence.predicted is not None
    assert evidence.predicted.alone_pct == (-82, -80, -78)
    assert len(requests_of(setup, Arm.INCUMBENT)) == len(requests_of(setup, Arm.CANDIDATE))
    assert any(file.path.endswith("predicted.json") for file in evidence.files)


def test_blocks_without_a_call_of_the_code_are_broken(setup: Setup, tmp_path: Path) -> None:
    """The counters of these fakes stand still, so the code ran before the traffic and never under it."""
    engaged(setup, tmp_path)
    evidence = measure_service(patching(setup), recall=known_noise, code=Code(OURS))
    judged = judge_service(evidence, load_criteria(setup.scenario, Scenario), True)
    assert judged.outcome is Outcome.BROKEN
    assert "no call" in judged.reason


def test_on_a_gpu_calls_of_a_block_say_nothing_and_predict_nothing(setup: Setup, tmp_path: Path) -> None:
    """A CUDA graph replays a kernel without a call, and a call takes the host as long as a launch does."""
    engaged(setup, tmp_path)
    setup.witnesses = {arm: replace(witness, device="cuda") for arm, witness in setup.witnesses.items()}
    evidence = measure_service(patching(setup), recall=known_noise, code=Code(OURS, ALONE))
    assert evidence.predicted is None
    assert set(values(evidence, "code_calls", Arm.CANDIDATE)) == {None}
    judged = judge_service(evidence, load_criteria(setup.scenario, Scenario), True)
    assert "no call" not in judged.reason


NOT_ENGAGED: dict[str, dict[str, object]] = {
    "is `not imported`": {"modules": {}},
    "should be `called`, is `never called`": {"calls": 0},
    "should be": {"modules": {"pack.mod": digest("another file")}},
}


@pytest.mark.parametrize("said", NOT_ENGAGED)
def test_code_that_was_laid_and_does_not_run_is_broken_before_any_traffic(
    said: str, setup: Setup, tmp_path: Path
) -> None:
    engaged(setup, tmp_path, **NOT_ENGAGED[said])  # type: ignore[arg-type]
    with pytest.raises(Broken, match=said):
        measure_service(patching(setup), recall=known_noise, code=Code(OURS))
    assert not any(engine.seen for engine in setup.engines.values())


def test_an_incumbent_that_runs_the_candidates_code_is_broken(setup: Setup, tmp_path: Path) -> None:
    engaged(setup, tmp_path)
    setup.witnesses[Arm.INCUMBENT] = setup.witnesses[Arm.CANDIDATE]
    with pytest.raises(Broken, match="no proof that the incumbent"):
        measure_service(patching(setup), recall=known_noise, code=Code(OURS))


def test_a_patch_that_does_not_fit_is_a_failed_build_with_the_reason(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.service_code.engine", lambda: Engine(Path("python"), {"sglang": "0.5.23"}, "x"))
    monkeypatch.setattr("serving.overlay.installed_packages", list)
    hypothesis = patching(setup)
    assert isinstance(hypothesis.change, CodePatch)
    assert "no package `pack`" in (build_patch(hypothesis, hypothesis.change).failure or "")
