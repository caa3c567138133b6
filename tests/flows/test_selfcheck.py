"""`infra-agent selfcheck`: its exit status says whether the evaluator is sound."""

import json
from pathlib import Path

import pytest

from flows import cli, selfcheck
from serving.errors import BadInput, Broken
from tasks.golden import GoldenResult
from tasks.selfcheck import Adversaries, Failure, Honest, SelfcheckReport

SOUND = SelfcheckReport(
    quick=True,
    adversaries=Adversaries(total=2, caught=2),
    honest=Honest(total=1, passed=1),
    golden=(GoldenResult(name="C2", expected="PASSED", given="PASSED"),),
)
MISSED = Adversaries(total=2, caught=1, failures=(Failure(name="t1", reason="nothing stopped it"),))


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[object, str, str]:
    """Exit status, stdout and stderr of the command in this process."""
    monkeypatch.setattr("sys.argv", ["infra-agent", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return (ended.value.code or 0, *capsys.readouterr())


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({}, 0, "adversaries: 2 of 2 caught"),
        ({"adversaries": MISSED}, 1, "t1: nothing stopped it"),
        ({"honest": Honest(total=1, passed=0, failures=(Failure(name="x", reason="accused"),))}, 1, "x: accused"),
        ({"golden": (GoldenResult(name="C2", expected="PASSED", given="REJECTED"),)}, 1, "C2: expected PASSED"),
    ],
)
def test_the_exit_status_is_1_if_anything_was_misjudged(
    changes: dict[str, object],
    status: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    report = SOUND.model_copy(update=changes)
    monkeypatch.setattr(selfcheck, "run_selfcheck", lambda quick, say: report)
    target = tmp_path / "report.json"
    found, out, _ = run(capsys, monkeypatch, "selfcheck", "--quick", "--json", str(target))
    assert found == status
    assert words in out
    assert json.loads(target.read_text())["adversaries"]["total"] == 2


@pytest.mark.parametrize(("error", "status"), [(BadInput("no candidates", "x"), 2), (Broken("a sandbox", "x"), 4)])
def test_no_candidates_are_bad_input_and_faults_of_ours_are_broken(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(quick: bool, say: object) -> SelfcheckReport:
        raise error

    monkeypatch.setattr(selfcheck, "run_selfcheck", fail)
    found, _, err = run(capsys, monkeypatch, "selfcheck")
    assert found == status
    assert "hint: x" in err
