"""The propose stage as a task with its artifact, and the command that asks: exit status and words by contract."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from examples import block, build, evidence
from scripted_model import KEY, ScriptedModel, Turn, failing, proposing, saying

from flows import cli
from serving.home import REPOSITORY
from tasks import stages
from tasks.hypothesis_file import load_hypothesis
from tasks.ledger import Ledger
from tasks.records import Arm, Build, Evidence, Experiment, Hypothesis, Rung

Capture = pytest.CaptureFixture[str]
KDA = REPOSITORY / "kernels" / "kda_decode"
GOOD = {
    "title": "Reciprocals in both norms",
    "rationale": "each program divides 2 x 128 elements by a root that they share",
    "question": "same results",
    "prediction": {"observable": "out_rel_error", "direction": "same", "size": 0, "unit": "1"},
    "mechanism": "errors stay at those of fp32 in every regime",
    "source": (KDA / "reciprocal.py").read_text(),
}


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str, **environment: str
) -> tuple[int, str, str]:
    for name in ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "INFRA_AGENT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["infra-agent", *arguments])
    code: object = 0
    try:
        cli.main()
    except SystemExit as ended:
        code = ended.code
    out, err = capsys.readouterr()
    return (code if isinstance(code, int) else 0), out, err


def asking(*turns: Turn) -> ScriptedModel:
    return ScriptedModel(turns)


def of(model: ScriptedModel) -> dict[str, str]:
    """The tiny GLM's name has a price, of nothing."""
    return {**model.environment, "INFRA_AGENT_MODEL": "tiny-glm4-moe"}


@pytest.mark.parametrize("command", [("propose",), ("run", "--propose")])
def test_without_endpoint_model_and_key_it_says_what_to_set(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, err = run(capsys, monkeypatch, *command, str(KDA))
    assert (status, out) == (2, "")
    assert "error: no model can be asked: there is no endpoint and no model and no key" in err
    assert "hint: set ANTHROPIC_BASE_URL" in err


def test_accepted_and_refused_proposals_are_printed_written_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, file, ideas = f"file://{tmp_path}/ledger", tmp_path / "proposals.json", tmp_path / "ideas"
    same = {**GOOD, "title": "The incumbent again", "source": None}
    with asking(proposing(GOOD, same, {"title": "half"}), proposing(same)) as model:
        command = ("propose", "kda_decode", "--n", "3", "--json", str(file), "--ledger", url, "--write", str(ideas))
        status, out, err = run(capsys, monkeypatch, *command, **of(model))
    assert status == 0, err
    assert "accepted  Reciprocals in both norms" in out
    assert "refused   The incumbent again" in out
    assert "unusable  " in out
    assert "calls, " in out.splitlines()[-1]
    assert [x["title"] for x in json.loads(file.read_text())["accepted"]] == [GOOD["title"]]
    (kept,) = ideas.glob("*/hypothesis.yaml")
    assert load_hypothesis(kept).id == Hypothesis.model_validate(json.loads(file.read_text())["accepted"][0]).id
    assert {entry.kind for entry in Ledger(url).read().entries} == {"proposals", "refusal"}
    assert "models asked: 1, proposals accepted: 1" in run(capsys, monkeypatch, "ledger", "stats", "--ledger", url)[1]
    assert KEY not in out + err + file.read_text()


@pytest.mark.parametrize(
    ("turns", "status", "words"),
    [
        ([saying("no", stop="refusal")], 1, "the model declined"),
        (
            [failing(401, "authentication_error", f"bad key {KEY}")],
            2,
            "turned the request down: status 401: bad key [key]",
        ),
        ([failing(500, "api_error")], 1, "a cap was reached"),
    ],
)
def test_an_ask_that_comes_to_nothing_has_the_status_of_its_reason(
    turns: list[Turn], status: int, words: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    caps = (REPOSITORY / "infra" / "model.yaml").read_text().replace("calls: 8", "calls: 1")
    (tmp_path / "model.yaml").write_text(caps)
    with asking(*turns) as model:
        environment = {**of(model), "INFRA_AGENT_MODEL_FILE": str(tmp_path / "model.yaml")}
        given, out, err = run(capsys, monkeypatch, "propose", "kda_decode", **environment)
    assert given == status, err
    assert words in out + err
    assert "Traceback" not in err


def test_a_run_takes_a_file_or_a_target_and_not_both(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in ((), (str(KDA / "hypotheses" / "reciprocal.yaml"), "--propose", "kda_decode")):
        status, _, err = run(capsys, monkeypatch, "run", *arguments)
        assert status == 2
        assert "either a hypothesis file or `--propose TARGET`" in err


def test_a_plan_of_the_best_proposal_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with asking(proposing(GOOD), proposing()) as model:
        command = ("run", "--propose", "kda_decode", "--plan", "--ledger", f"file://{tmp_path}/l")
        status, out, err = run(capsys, monkeypatch, *command, **of(model))
    assert status == 0, err
    assert "numerics   answer" in out


@pytest.mark.flow
@pytest.mark.usefixtures("prefect_server")
@pytest.mark.filterwarnings("ignore")  # of Prefect's own
def test_the_best_proposal_goes_up_the_ladder_with_the_key_of_a_block_and_the_stage_shows_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

    from flows.propose import KEY_BLOCK, Secret, propose_and_run

    def built(view: Experiment, book: Ledger) -> Build:
        return build(view.hypothesis)

    def numerics(view: Experiment, book: Ledger) -> Evidence:
        return evidence(Rung.NUMERICS, *(block(arm, "out_rel_error", 1e-7) for arm in Arm))

    monkeypatch.setattr(stages, "build", built)
    monkeypatch.setitem(stages.MEASURES, Rung.NUMERICS, numerics)
    url = f"file://{tmp_path}/ledger"
    with asking(proposing(GOOD), proposing()) as model:
        for name, value in of(model).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("ANTHROPIC_API_KEY")
        Secret(value=KEY).save(KEY_BLOCK)
        ended = propose_and_run("kda_decode", n=1, ledger_url=url)
        assert all(KEY in str(headers) for headers, _ in model.seen)
    assert ended.experiment
    assert ended.experiment.verdict
    assert ended.experiment.verdict.outcome == "PASSED"
    assert ended.experiment.hypothesis.origin == "model"
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=ArtifactFilter(key=ArtifactFilterKey(like_="proposals-%")))
        runs: list[Any] = client.read_task_runs()
    assert any("tokens in" in str(artifact.data) and "1 accepted" in str(artifact.data) for artifact in found)
    assert any(artifact.task_run_id for artifact in found)
    assert "propose for kda_decode" in {task.name for task in runs}
    assert all(KEY not in str(artifact.data) for artifact in found)
    kinds = [entry.kind for entry in Ledger(url).read().entries]
    assert {"proposals", "hypothesis", "plan", "build", "evidence", "verdict"} <= set(kinds)
    assert "ANTHROPIC_API_KEY" not in os.environ  # nothing that is started from here inherits it
