"""Stored evidence can be judged again: the same criteria give the same verdict, others give another."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from examples import experiment, stack_hypothesis
from service_evidence import CRITERIA, SCENARIO, guard, pairs, service

from serving.errors import BadInput
from serving.home import REPOSITORY
from tasks.decide import broken, decide
from tasks.history import attempts
from tasks.ledger import Ledger
from tasks.records import Experiment
from tasks.rejudge import load_any_criteria, rejudge, rejudge_all

SCENARIO_FILE = REPOSITORY / "serving" / "scenarios" / "mixed-lengths-cpu.yaml"


def ledger_of(count: int, url: str) -> Ledger:
    """Experiments with effects, noise and faults of all sizes, each with the verdict it got."""
    ledger, rng = Ledger(url), np.random.default_rng(7)
    for number in range(count):
        asked = stack_hypothesis().model_copy(update={"title": f"experiment {number}"})
        view = experiment(asked)
        effects = {SCENARIO.primary: float(rng.uniform(-50, 10)), "e2e_mean_ms": float(rng.uniform(-10, 30))}
        drift = float(rng.choice([1e-6, 0.5], p=[0.9, 0.1]))
        found = service(guard(drift) + pairs(effects, count=int(rng.integers(4, 30)), seed=number), subject=asked.id)
        view = view.with_record(found)
        verdict = broken(view, "the port was taken", 3.0) if number % 10 == 9 else decide(view, CRITERIA)
        assert verdict is not None
        for record in (asked, view.plan, *([] if number % 10 == 9 else [found]), verdict):
            ledger.append(asked.id, view.attempt, record)
    return ledger


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> list[Experiment]:
    return attempts(ledger_of(60, f"file://{tmp_path_factory.mktemp('ledger')}/l").read())


def test_the_same_criteria_give_the_same_verdict_byte_for_byte(stored: list[Experiment]) -> None:
    criteria = load_any_criteria(SCENARIO_FILE)
    assert len(stored) == 60
    assert len({e.verdict.outcome for e in stored if e.verdict}) == 4
    for one in stored:
        again = rejudge(one, criteria)
        assert one.verdict is not None
        assert again is not None
        assert again.model_dump_json() == one.verdict.model_dump_json()


def test_other_criteria_say_which_past_verdicts_would_change(stored: list[Experiment], tmp_path: Path) -> None:
    text = yaml.safe_load(SCENARIO_FILE.read_text()) | {"smallest_effect_of_interest_pct": 60}
    (tmp_path / "strict.yaml").write_text(yaml.safe_dump(text))
    strict = rejudge_all(stored, load_any_criteria(tmp_path / "strict.yaml"))
    assert {one.experiment.verdict.outcome.value for one in strict if one.changes and one.experiment.verdict} >= {
        "PASSED"
    }
    assert all(one.verdict.outcome != "PASSED" for one in strict)
    assert all(
        one.verdict == one.experiment.verdict
        for one in strict
        if one.experiment.verdict and not one.experiment.evidence
    )


def test_criteria_of_another_kind_judge_nothing_here(stored: list[Experiment]) -> None:
    assert rejudge_all(stored, load_any_criteria(REPOSITORY / "kernels" / "kda_decode" / "criteria.yaml")) == []


def test_a_criteria_file_that_is_none_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("version: 1\n")
    with pytest.raises(BadInput, match="field required"):
        load_any_criteria(tmp_path / "x.yaml")
