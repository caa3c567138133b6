"""The campaign: one open hypothesis after the other, until none is left or a budget ends."""

import time

from prefect import flow

from flows.artifacts import publish_campaign
from flows.experiment import run_experiment
from flows.pools import cancel_children
from serving.home import located
from tasks.campaign import CampaignReport, load_campaign, read_catalogue, report, started, still_open
from tasks.ledger import Ledger, default_url
from tasks.opening import new_experiment
from tasks.records import Experiment


@flow(
    name="campaign",
    flow_run_name="campaign {campaign}",
    persist_result=False,
    on_cancellation=[cancel_children],
    on_crashed=[cancel_children],
)
def run_campaign(campaign: str, ledger_url: str | None = None) -> CampaignReport:
    """Try what the ledger has not decided yet.

    Args:
        campaign: the name of a campaign file, relative to the repository.
        ledger_url: where records are kept; by default the ledger of the machine that runs this flow.
    """
    began, url, path = time.monotonic(), ledger_url or default_url(), located(campaign)
    asked = load_campaign(path)
    catalogue = read_catalogue(asked, path.resolve().parent)
    was_open = still_open(catalogue, Ledger(url).read())
    ended: list[Experiment] = []
    for hypothesis in was_open:
        if asked.budget.ended(len(started(ended)), time.monotonic() - began):
            break
        ended.append(run_experiment(new_experiment(hypothesis, url), url))
    return publish_campaign(report(asked, catalogue, was_open, ended, time.monotonic() - began))
