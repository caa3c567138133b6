"""Adversaries are caught where and why their files say, and honest candidates pass: a false accusation is a defect, too.

Here a few of each kind on a small problem; `infra-agent selfcheck` judges all of them on the whole one.
"""

from pathlib import Path

import pytest

from serving.errors import BadInput
from tasks.cases import CANDIDATES, Case, load_cases
from tasks.golden import GoldenResult, load_golden
from tasks.problem import load_problem
from tasks.records import Outcome
from tasks.selfcheck import Failure, Played, misjudged, narrowed, play, report_of, summary

CASES = {case.name: case for case in load_cases()}
FEW = ("h4_forges_with_the_nonce", "s5_programs_race", "c1_cached_by_address", "names_imported_alone")
ADVERSARY = CASES["s5_reads_out_of_bounds"]
HONEST = CASES["device_functions"]


@pytest.fixture
def builds(sandbox: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFRA_AGENT_HOME", str(tmp_path_factory.getbasetemp() / "candidates-home"))


@pytest.mark.usefixtures("builds")
@pytest.mark.parametrize("name", FEW)
def test_a_candidate_ends_as_its_file_says(name: str) -> None:
    case = CASES[name]
    assert misjudged(case, play(case, narrowed(load_problem(case.problem), case.header.checks))) is None


def test_there_are_many_of_each_kind_and_every_trap_of_kernels_is_played_or_named() -> None:
    adversaries = [case for case in CASES.values() if not case.honest]
    assert len(adversaries) >= 35
    assert len(CASES) - len(adversaries) >= 10
    assert any(case.header.quick for case in adversaries)
    assert any(case.header.quick for case in CASES.values() if case.honest)


def written(folder: Path, header: str, kind: str = "adversaries", code: str = "") -> Path:
    path = folder / "kda_decode" / kind / "one.py"
    path.parent.mkdir(parents=True)
    path.write_text(f'"""A title.\n\n{header}\n"""\n{code}')
    return folder


GOOD = "trap: [T1]\nrung: build\nreason: x\nbase: incumbent\n"


def test_a_header_gives_traps_rung_and_reason_and_the_text_stands_behind_its_base(tmp_path: Path) -> None:
    edits = "edits:\n  - old: num_warps=1,\n    new: num_warps=2,"
    (case,) = load_cases(written(tmp_path, GOOD + edits, code="\n\ndef run(q):\n    honest_run(q)\n"))
    assert (case.title, case.header.trap, case.caught_at, case.honest) == ("A title.", ("T1",), None, False)
    assert "def honest_run(" in case.candidate.source
    assert "num_warps=2," in case.candidate.source
    assert case.candidate.source.rstrip().endswith("honest_run(q)")


@pytest.mark.parametrize(
    ("header", "kind", "words"),
    [
        ("trap: [T1]\nrung: build", "adversaries", "does not fit its folder"),
        (GOOD, "honest", "does not fit its folder"),
        (GOOD + "colour: red", "adversaries", "unknown key `colour`"),
        (GOOD.replace("reason: x", "reason: '('"), "adversaries", "reason"),
        (GOOD + "edits:\n  - {old: nowhere, new: x}", "adversaries", "does not hold `nowhere`"),
        ("trap: [", "adversaries", "has no header"),
    ],
)
def test_a_header_that_says_nonsense_is_named(tmp_path: Path, header: str, kind: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        load_cases(written(tmp_path, header, kind))


def test_an_installation_without_candidates_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no candidates to judge"):
        load_cases(tmp_path)


@pytest.mark.parametrize(
    ("case", "played", "words"),
    [
        (ADVERSARY, Played(rung=None, outcome=None, reason="right"), "nothing stopped it: right"),
        (ADVERSARY, Played(rung="build", outcome=Outcome.REJECTED, reason="x"), "expected REJECTED at numerics"),
        (ADVERSARY, Played(rung="numerics", outcome=Outcome.REJECTED, reason="x"), "expected a reason like"),
        (HONEST, Played(rung="static", outcome=Outcome.REJECTED, reason="x"), "accused falsely, REJECTED at static"),
        (HONEST, Played(rung="numerics", outcome=Outcome.INCONCLUSIVE, reason="x"), "accused falsely"),
    ],
)
def test_a_misjudgement_is_named(case: Case, played: Played, words: str) -> None:
    assert words in str(misjudged(case, played))


def test_the_report_counts_and_lists_what_went_wrong() -> None:
    wrong = {ADVERSARY.name: Failure(name=ADVERSARY.name, reason="it got through"), HONEST.name: None}
    golden = (GoldenResult(name="C2", expected="PASSED", given="REJECTED"),)
    report = report_of(True, [ADVERSARY, HONEST], wrong, golden)
    assert (report.adversaries.total, report.adversaries.caught) == (1, 0)
    assert (report.honest.total, report.honest.passed) == (1, 1)
    assert not report.sound
    assert not report_of(False, [HONEST], wrong, golden).sound
    assert report_of(False, [HONEST], wrong, ()).sound
    absent = GoldenResult(name="C3", expected="PASSED", given="not run", not_run="no engine environment")
    lacking = report_of(False, [HONEST], wrong, (absent,))
    assert lacking.sound
    assert "C3: not run: no engine environment" in summary(lacking)
    text = summary(report)
    for words in (
        "0 of 1 caught",
        "1 of 1 passed",
        "0 of 1 as expected",
        "it got through",
        "given REJECTED",
        "a subset",
    ):
        assert words in text


def test_golden_experiments_name_hypotheses_that_exist_and_some_are_quick() -> None:
    steps = load_golden(CANDIDATES)
    assert {step.outcome for step in steps} >= {Outcome.PASSED, Outcome.REJECTED}
    assert any(step.quick for step in steps)
    for step in steps:
        assert (CANDIDATES.parents[1] / step.hypothesis).is_file()


@pytest.mark.parametrize("checks", [("no_such_check",), ("default_fp32",)])
def test_a_problem_is_not_narrowed_to_what_speaks_for_no_production_shape(checks: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="lacks one of the checks"):
        narrowed(load_problem("kda_decode"), checks)
