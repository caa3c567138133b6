"""The campaign as a flow and as a command: what is open, one after the other, until a budget ends."""

from pathlib import Path

import pytest
import yaml
from examples import build
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey

from flows import local
from flows.campaign import run_campaign
from flows.campaign_command import run_campaign_file
from serving.errors import Broken
from serving.home import REPOSITORY
from tasks import stages
from tasks.campaign import CampaignReport, report_text
from tasks.ledger import Ledger
from tasks.records import Build, Experiment, Outcome, RefusedFor

pytestmark = [
    pytest.mark.flow,
    pytest.mark.usefixtures("prefect_server"),
    pytest.mark.filterwarnings("ignore"),  # of Prefect's own
]
KDA = REPOSITORY / "kernels" / "kda_decode"


@pytest.fixture
def campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three hypotheses and a budget of two experiments. The first build breaks; the others are the candidate's fault."""

    def double(view: Experiment, book: Ledger) -> Build:
        if view.hypothesis.title == "0":
            raise Broken("the compiler was killed", "run it again")
        return build(view.hypothesis, failure="made to fail")

    monkeypatch.setattr(stages, "build", double)
    written = (KDA / "hypotheses" / "hoist_gate.yaml").read_text()
    written = written.replace("../hoist_gate.py", str(KDA / "hoist_gate.py"))
    for title in "012":
        document = yaml.safe_load(written) | {"title": title}
        document["change"]["launch"] = {"num_warps": 2 ** int(title)}
        (tmp_path / f"{title}.yaml").write_text(yaml.safe_dump(document))
    path = tmp_path / "campaign.yaml"
    path.write_text(yaml.safe_dump({"title": "night", "hypotheses": ["[0-9].yaml"], "budget": {"experiments": 2}}))
    return path


def tried(report: CampaignReport) -> list[tuple[str, Outcome | None]]:
    return [(trial.title, trial.outcome) for trial in report.trials]


def test_a_campaign_goes_on_where_its_budget_ended_and_retries_only_what_broke(campaign: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/ledger"
    first = run_campaign(str(campaign), url)
    assert tried(first) == [("0", Outcome.BROKEN), ("1", Outcome.REJECTED)]
    assert (first.left, first.ended_by) == (("2",), "the budget of 2 experiments")
    second = run_campaign(str(campaign), url)
    assert tried(second) == [("0", Outcome.BROKEN), ("2", Outcome.REJECTED)]
    assert (second.decided_before, second.left, second.ended_by) == (1, (), "nothing was left to try")
    with get_client(sync_client=True) as client:
        key = ArtifactFilterKey(any_=["campaign"])
        shown = [str(found.data) for found in client.read_artifacts(artifact_filter=ArtifactFilter(key=key))]
    assert any("tried 2: passed 0, rejected 1, inconclusive 0, broken 1" in data for data in shown)
    assert all("| run | state | took |" in data for data in shown), "the experiments are linked"


def test_the_command_prints_the_report_and_says_when_something_broke(
    campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local, "start_prefect", lambda: None)
    monkeypatch.setattr(local, "show_progress", lambda: None)
    url = f"file://{tmp_path}/ledger"
    assert run_campaign_file(campaign, tmp_path / "report.json", url) == "BROKEN"
    assert "**BROKEN** 0" in capsys.readouterr().out
    report = CampaignReport.model_validate_json((tmp_path / "report.json").read_text())
    assert [trial.title for trial in report.trials] == ["0", "1"]


def test_what_the_challenger_refuses_is_counted_apart_and_spends_no_budget(campaign: Path, tmp_path: Path) -> None:
    document = yaml.safe_load((tmp_path / "1.yaml").read_text())
    (tmp_path / "1.yaml").write_text(yaml.safe_dump(document | {"mechanism": "It is faster."}))
    report = run_campaign(str(campaign), f"file://{tmp_path}/ledger")
    assert tried(report) == [("0", Outcome.BROKEN), ("2", Outcome.REJECTED)]
    assert [(one.title, one.reason) for one in report.challenged] == [("1", RefusedFor.EMPTY_MECHANISM)]
    assert (report.count(Outcome.REJECTED), report.left, report.refused) == (1, (), ())
    assert "- refused before a build: 1 (" in report_text(report)
