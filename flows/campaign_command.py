"""`infra-agent campaign FILE`: the campaign on this machine."""

import os
from pathlib import Path

import click
import httpx

from flows import local
from flows.commands import write
from flows.result_file import check_writable
from serving.errors import Broken
from tasks.campaign import load_campaign, read_catalogue, report_text
from tasks.ledger import Ledger, default_url
from tasks.records import Outcome


def run_campaign_file(path: Path, json_file: Path | None, ledger_url: str | None) -> str:
    """Returns BROKEN if an experiment ended so, else PASSED. Raises `BadInput` before anything runs, or `Broken`."""
    check_writable(json_file)
    read_catalogue(load_campaign(path), path.resolve().parent)
    url = ledger_url or default_url()
    Ledger(url).check_writable()
    local.show_progress()
    local.start_prefect()
    from flows.campaign import run_campaign

    try:
        ended = run_campaign(str(path.resolve()), url)
    except (RuntimeError, OSError, httpx.HTTPError) as error:
        first = str(error).splitlines()[0] if str(error) else repr(error)
        server = os.environ.get("PREFECT_API_URL")
        raise Broken(f"Prefect failed: {first}", f"is the server at `{server}` up? Run it again to go on") from error
    click.echo(report_text(ended))
    write(json_file, ended)
    sound = all(trial.outcome not in (None, Outcome.BROKEN) for trial in ended.trials)
    return "PASSED" if sound else "BROKEN"
