"""The nightly selfcheck fails its run when the evaluator misjudges."""

import pytest

from flows import selfcheck_flow
from flows.selfcheck_flow import check_evaluator
from serving.errors import Broken
from tasks.selfcheck import Adversaries, Failure, Honest, SelfcheckReport

pytestmark = [
    pytest.mark.flow,
    pytest.mark.usefixtures("prefect_server"),
    pytest.mark.filterwarnings("ignore"),  # of Prefect's own
]
SOUND = SelfcheckReport(quick=True, adversaries=Adversaries(total=1, caught=1), honest=Honest(total=1, passed=1))


def test_a_sound_evaluator_completes_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfcheck_flow, "run_selfcheck", lambda quick, say: SOUND)
    assert check_evaluator(quick=True) == SOUND


def test_a_misjudged_candidate_fails_the_run_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    missed = Adversaries(total=1, caught=0, failures=(Failure(name="writes_its_input", reason="was not caught"),))
    unsound = SOUND.model_copy(update={"adversaries": missed})
    monkeypatch.setattr(selfcheck_flow, "run_selfcheck", lambda quick, say: unsound)
    with pytest.raises(Broken, match="writes_its_input"):
        check_evaluator(quick=True)
