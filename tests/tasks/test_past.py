"""Which earlier attempts settle a question, and which leave it open."""

from pathlib import Path

import pytest
from examples import block, evidence, experiment

from tasks.decide import broken
from tasks.ledger import Ledger
from tasks.past import past_of
from tasks.records import Arm, Evidence, Experiment, Outcome, Rung, Verdict

OBSERVED = evidence(Rung.STATIC, block(Arm.CANDIDATE, "warp_instructions", 1.0))
GATE = evidence(Rung.NUMERICS, block(Arm.CANDIDATE, "out_rel_error", 1e-7))
NOT_RUN = evidence(Rung.STATIC, not_run="no compiler", engagement=())


def store(url: str, view: Experiment) -> None:
    for record in (view.hypothesis, view.plan, *view.evidence, *([view.verdict] if view.verdict else [])):
        Ledger(url).append(view.hypothesis_id, view.attempt, record)


def ended(outcome: Outcome, *seen: Evidence) -> Experiment:
    view = experiment()
    for one in seen:
        view = view.with_record(one)
    if outcome is Outcome.BROKEN:
        return view.with_record(broken(view, "the port was taken"))
    return view.with_record(Verdict(hypothesis_id=view.hypothesis_id, outcome=outcome, reason="so it was"))


@pytest.mark.parametrize(
    ("view", "settled"),
    [
        (ended(Outcome.REJECTED, OBSERVED), True),
        (ended(Outcome.REJECTED), True),
        (ended(Outcome.BROKEN, OBSERVED), False),
        (experiment(), False),
        (ended(Outcome.INCONCLUSIVE, GATE, OBSERVED), True),
        (ended(Outcome.INCONCLUSIVE, GATE, NOT_RUN), False),
        (ended(Outcome.INCONCLUSIVE, GATE), False),
    ],
    ids=["rejected", "does not build", "broken", "cut off", "undecided", "not run", "left out"],
)
def test_what_a_rung_could_still_answer_stays_open(view: Experiment, settled: bool, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/l"
    store(url, view)
    past = past_of(Ledger(url))
    assert [asked.hypothesis for asked in past.settled] == ([view.hypothesis] if settled else [])
    if settled:
        assert "so it was" in past.settled[0].says


def test_a_damaged_object_is_skipped_and_said(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/l"
    store(url, ended(Outcome.REJECTED))
    (tmp_path / "l" / "0123").mkdir()
    (tmp_path / "l" / "0123" / "0001-verdict.json").write_text("{")
    past = past_of(Ledger(url))
    assert len(past.settled) == 1
    assert [damage.path for damage in past.damaged] == ["0123/0001-verdict.json"]
