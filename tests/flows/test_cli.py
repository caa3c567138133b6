"""The command: exit status by contract, and messages that help."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from examples import experiment

from flows import cli
from serving.errors import BadInput, Broken
from serving.faults import error, warning
from serving.home import REPOSITORY
from tasks.decide import broken
from tasks.ledger import Ledger
from tasks.records import Refusal

PROBLEM = REPOSITORY / "kernels" / "kda_decode"
HOIST = (
    (PROBLEM / "hypotheses" / "hoist_gate.yaml").read_text().replace("../hoist_gate.py", str(PROBLEM / "hoist_gate.py"))
)


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of the command in this process."""
    monkeypatch.setattr("sys.argv", ["infra-agent", *arguments])
    code: object = 0
    try:
        cli.main()
    except SystemExit as ended:
        code = ended.code
    out, err = capsys.readouterr()
    return (code if isinstance(code, int) else 0), out, err


def written(tmp_path: Path, content: str | bytes) -> str:
    path = tmp_path / "hypothesis.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


BAD_FILES = {
    "empty": ("", "is empty"),
    "only blanks": (" \n\n", "is empty"),
    "binary": (b"\x00\xff\x01", "not UTF-8 text"),
    "a list": ("- a\n- b\n", "does not hold a YAML mapping"),
    "not YAML": ("title: [unclosed", "not valid YAML"),
    "a missing key": ("title: x\n", "field required"),
    "an unknown key": (HOIST + "colour: red\n", "unknown key `colour`"),
    "a misspelt key": (HOIST.replace("title:", "titel:", 1), "unknown key `titel`"),
    "an unknown problem": (HOIST.replace("problem: kda_decode", "problem: nope"), "unknown kernel problem `nope`"),
    "an unknown question": (HOIST.replace("less emitted work", "is it pretty"), "`question`"),
    "a missing source": (HOIST.replace("hoist_gate.py", "nowhere.py"), "no such file"),
    "a key that stands twice": (HOIST + "title: again\n", "the key `title` stands twice"),
    "a launch option that is no number": (
        HOIST.replace("hoist_gate.py}", "hoist_gate.py, launch: {BV: .nan}}"),
        "launch",
    ),
    "an integer without end": (
        HOIST.replace("hoist_gate.py}", "hoist_gate.py, launch: {BV: 0x" + "f" * 999 + "}}"),
        "launch",
    ),
    "a surrogate": (HOIST.replace("hoist_gate.py}", 'hoist_gate.py, launch: {X: "\\ud800"}}'), "no printable text"),
    "a problem with a long name": (
        HOIST.replace("problem: kda_decode", "problem: " + "x" * 3000),
        "unknown kernel problem",
    ),
    "a source with a long name": (HOIST.replace("hoist_gate.py", "y" * 3000), "cannot read"),
    "a size that is a word": (HOIST.replace("size: 8", "size: yes"), "size"),
    "a prediction without size": (HOIST.replace("direction: down", "direction: same"), "prediction"),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_bad_hypothesis_file_is_exit_2_with_a_hint_and_leaves_no_record(
    what: str, tmp_path: Path, own_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content, words = BAD_FILES[what]
    status, out, err = run(capsys, monkeypatch, "run", written(tmp_path, content))
    assert status == 2
    assert out == ""
    assert err.startswith("error: ")
    assert "\nhint: " in err
    assert words in err
    assert "Traceback" not in err
    assert not (own_home / "ledger").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "no-such-file.yaml"],
        ["run", "."],
        ["run"],
        ["run", "x.yaml", "--upto", "wibble"],
        ["run", "x.yaml", "--budget-s", "0"],
        ["run", "x.yaml", "--bud", "60"],
        ["run", "x.yaml", "--budget-s", "nan"],
        ["run", "x.yaml", "--json", "."],
        ["run", "x.yaml", "--json", "z" * 300],
        ["run", "w" * 3000],
        ["ledger", "list", "--ledger", "github://owner:repository@main"],
        ["ledger", "list", "--ledger", "zip://x::file:///etc/hosts"],
        ["check", "wibble", "x.py"],
        ["check", "static", "no-such-file.py"],
        ["check", "static", "README.md"],
        ["check", "engine", "README.md"],
        ["ledger", "show", "no-such-id"],
        ["ledger", "list", "--ledger", "nosuch://x"],
        ["schema", "Nothing"],
        ["campaign", "no-such-file.yaml"],
        ["campaign", "README.md"],
        ["campaign", str(PROBLEM / "hypotheses" / "hoist_gate.yaml")],
        ["infra"],
        ["infra", "apply"],
        ["export", "flashinfer-trace", "no_such_problem", "dataset"],
        ["export", "flashinfer-trace", "kda_decode", "/"],
        ["export", "flashinfer-trace", "kda_decode", "README.md"],
        ["export", "nothing"],
        ["wibble"],
        *[[name] for name in cli.PLANNED],
    ],
    ids=" ".join,
)
def test_bad_usage_is_exit_2_with_a_hint(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    status, out, err = run(capsys, monkeypatch, *arguments)
    assert (status, out) == (2, "")
    assert "\nhint: " in err
    assert "Traceback" not in err


def test_a_plan_is_printed_with_reasons_and_nothing_is_run(
    tmp_path: Path, own_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = {}
    for question in ("same results", "less emitted work", "faster kernel"):
        text = HOIST.replace("question: less emitted work", f"question: {question}")
        status, plans[question], _ = run(capsys, monkeypatch, "run", written(tmp_path, text), "--plan")
        assert status == 0
    assert len(set(plans.values())) == 3
    assert "microbench answer" in plans["faster kernel"]
    assert "microbench left out: not needed" in plans["less emitted work"]
    assert not (own_home / "ledger").exists()


def test_a_json_file_that_cannot_be_written_is_said_before_anything_runs(
    tmp_path: Path, own_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, err = run(
        capsys, monkeypatch, "run", written(tmp_path, HOIST), "--json", str(tmp_path / "no" / "out.json")
    )
    assert status == 2
    assert "out.json" in err
    assert not (own_home / "ledger").exists()


def test_a_ledger_that_cannot_be_written_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    status, _, err = run(capsys, monkeypatch, "run", written(tmp_path, HOIST), "--ledger", f"file://{tmp_path}/file/l")
    assert status == 4
    assert "not writable" in err


def test_a_name_that_schema_does_not_know_brings_the_nearest_ones(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, err = run(capsys, monkeypatch, "schema", "Stack")
    assert status == 2
    assert "hint: did you mean `StackSpec`" in err


def test_every_name_that_schema_lists_has_a_schema(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, names, _ = run(capsys, monkeypatch, "schema")
    assert {
        "Experiment",
        "HypothesisFile",
        "Scenario",
        "StackSpec",
        "CriteriaFile",
        "CampaignFile",
        "PoolsFile",
    } <= set(names.split())
    for name in names.split():
        status, out, _ = run(capsys, monkeypatch, "schema", name)
        assert status == 0
        assert '"properties"' in out


def test_help_names_every_command_of_the_contract() -> None:
    shown: Result = CliRunner().invoke(cli.cli, ["--help"])
    for name in (
        "run",
        "check",
        "campaign",
        "export",
        "infra",
        "ledger",
        "schema",
        "doctor",
        "selfcheck",
        *cli.PLANNED,
    ):
        assert f"  {name} " in shown.output


@pytest.mark.parametrize(
    ("error", "status"), [(BadInput("bad", "fix"), 2), (Broken("broken", "wait"), 4), (KeyboardInterrupt(), 4)]
)
def test_faults_end_with_their_exit_status(
    error: BaseException, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("flows.commands.list_ledger", fail)
    given, _, err = run(capsys, monkeypatch, "ledger", "list")
    assert given == status
    assert "hint: " in err


def test_a_defect_of_ours_does_not_look_like_a_rejection(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("flows.commands.list_ledger", defect)
    status, _, err = run(capsys, monkeypatch, "ledger", "list")
    assert status == 4
    assert "defect of infra-agent" in err
    assert "Traceback" not in err


def test_a_json_file_behind_a_link_is_written_through_the_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    arguments = ("run", written(tmp_path, HOIST), "--plan", "--json", str(tmp_path / "link.json"))
    assert run(capsys, monkeypatch, *arguments)[0] == 0
    assert (tmp_path / "link.json").is_symlink()
    assert "numerics" in (tmp_path / "real.json").read_text()


def test_an_experiment_is_shown_whole_and_in_brief(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, view = f"file://{tmp_path}/l", experiment()
    for record in (view.hypothesis, view.plan, broken(view, "the port was taken")):
        Ledger(url).append(view.hypothesis_id, view.attempt, record)
    whole = run(capsys, monkeypatch, "ledger", "show", view.hypothesis_id[:8], "--ledger", url)
    short = run(capsys, monkeypatch, "ledger", "show", view.hypothesis_id[:8], "--brief", "--ledger", url)
    assert (whole[0], short[0]) == (0, 0)
    assert "the port was taken" in whole[1]
    assert short[1].startswith("hypothesis: hoist the gate")
    assert "outcome: BROKEN: the port was taken" in short[1]
    assert "left out: nothing" in short[1]


def test_doctor_lists_every_rung_and_ends_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFRA_AGENT_ENGINE", "/nowhere")
    status, out, _ = run(capsys, monkeypatch, "doctor")
    assert status == 0
    for rung in ("static", "numerics", "microbench", "overlap", "engine", "service"):
        assert rung in out
    assert "no  engine environment" in out
    assert "hint: run `make engine`" in out


def test_a_stack_with_errors_ends_with_2_and_its_faults_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "serving.validate.faults_of_file",
        lambda _: [error("roles.server.port", "is taken", "give another"), warning("model", "is new", "look")],
    )
    monkeypatch.setattr("serving.validate.memory_of_file", lambda _: ["memory of `server`: not known: it is new"])
    written_to = tmp_path / "faults.json"
    code, out, _ = run(capsys, monkeypatch, "stack", "validate", "s.yaml", "--json", str(written_to))
    assert code == 2
    assert "memory of `server`: not known: it is new" in out
    assert "error: `roles.server.port`: is taken" in out
    assert "1 error, 1 warning" in out
    assert [fault["field"] for fault in json.loads(written_to.read_text())["faults"]] == ["roles.server.port", "model"]
    monkeypatch.setattr("serving.validate.faults_of_file", lambda _: [warning("model", "is new", "look")])
    assert run(capsys, monkeypatch, "stack", "validate", "s.yaml")[0] == 0


@pytest.mark.parametrize("command", ["validate", "import"])
def test_a_missing_stack_or_recipe_is_bad_input(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = run(capsys, monkeypatch, "stack", command, "nowhere.yaml")
    assert (code, out) == (2, "")
    assert "error: no such file: `nowhere.yaml`" in err


def test_a_refused_hypothesis_is_exit_1_with_reason_and_hint_and_is_in_the_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.commands._run_flow", lambda *_: pytest.fail("something ran"))
    text, told = HOIST.replace("hoist_gate.py}", "incumbent.py}"), tmp_path / "refusal.json"
    status, out, err = run(capsys, monkeypatch, "run", written(tmp_path, text), "--plan")
    assert (status, out.startswith("plan for")) == (0, True)
    assert "it would be refused: no change: " in err
    status, out, _ = run(capsys, monkeypatch, "run", written(tmp_path, text), "--json", str(told))
    assert status == 1
    assert out.startswith("REFUSED  Norms and gate once per head")
    assert "reason: no change: " in out
    assert "hint: " in out
    refusal = Refusal.model_validate_json(told.read_text())
    id_ = refusal.hypothesis.id[:12]
    status, out, _ = run(capsys, monkeypatch, "ledger", "list")
    assert status == 0
    assert out.startswith(id_)
    assert "REFUSED" in out
    assert "no change" in out
    status, out, _ = run(capsys, monkeypatch, "ledger", "show", id_)
    assert status == 0
    assert "nothing was built" in out
    assert "refused before a build: 1 (no change 1)" in run(capsys, monkeypatch, "ledger", "stats")[1]


def test_a_question_that_no_rung_answers_is_refused_and_a_plan_for_it_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, HOIST.replace("less emitted work", "more overlap"))
    status, out, _ = run(capsys, monkeypatch, "run", path)
    assert status == 1
    assert "wrong question" in out
    assert run(capsys, monkeypatch, "run", path, "--plan")[0] == 2
