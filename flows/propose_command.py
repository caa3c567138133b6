"""`infra-agent propose TARGET` and `infra-agent run --propose TARGET`."""

import math
import os
from pathlib import Path

import click
import httpx

from flows import local
from flows.commands import write
from flows.result_file import check_writable
from serving.errors import BadInput, Broken
from tasks.folder import check_target, write_folder
from tasks.ledger import Ledger, default_url
from tasks.opening import new_experiment
from tasks.proposals import Ended, Proposals, best
from tasks.proposals_text import proposals_text
from tasks.propose import ask_for, ready_to_ask
from tasks.records import Rung
from tasks.report import plan_text, verdict_text
from tasks.written_out import files_of


def propose_target(target: str, n: int, json_file: Path | None, folder: Path | None, ledger_url: str | None) -> str:
    """Ask, print, and record; what was accepted goes into `folder` as hypothesis files.

    Returns PASSED if something was accepted, else REJECTED; see `check_answered`.
    """
    check_writable(json_file)
    if folder is not None:
        check_target(folder)
    local.show_progress()
    url = ledger_url or default_url()
    proposals = ask_for(target, n, Ledger(url), os.environ)
    click.echo(proposals_text(proposals))
    write(json_file, proposals)
    check_answered(proposals)
    if folder is not None and proposals.accepted:
        write_folder(files_of(proposals.accepted), folder)
        click.echo(f"written: {folder}; run one with `infra-agent run {folder}/01-…/hypothesis.yaml`", err=True)
    return "PASSED" if proposals.accepted else "REJECTED"


def run_proposed(
    target: str, only_plan: bool, upto: str | None, budget_s: float | None, json_file: Path | None, url: str | None
) -> str | None:
    """Ask, and take the best accepted proposal through the ladder; its outcome, or REJECTED if none was accepted."""
    if budget_s is not None and not math.isfinite(budget_s):
        raise BadInput(f"`{budget_s}` is no budget", "give seconds, such as --budget-s 600")
    check_writable(json_file)
    local.show_progress()
    ledger_url, rung = url or default_url(), Rung(upto) if upto else None
    ready_to_ask(target, os.environ)
    Ledger(ledger_url).check_writable()
    if only_plan:
        proposals = ask_for(target, 3, Ledger(ledger_url), os.environ)
        click.echo(proposals_text(proposals), err=True)
        check_answered(proposals)
        chosen = best(proposals)
        if chosen is None:
            return "REJECTED"
        plan = new_experiment(chosen, ledger_url, rung, budget_s).plan
        click.echo(plan_text(plan))
        write(json_file, plan)
        return None
    return _climbed(target, ledger_url, rung, budget_s, json_file)


def _climbed(target: str, ledger_url: str, upto: Rung | None, budget_s: float | None, json_file: Path | None) -> str:
    if not os.environ.get("PREFECT_API_URL"):
        click.echo("starting the embedded Prefect server (10-30 s)", err=True)
    local.start_prefect()
    from flows.propose import propose_and_run

    try:
        ended = propose_and_run(target, ledger_url=ledger_url, upto=upto, budget_s=budget_s)
    except (RuntimeError, OSError, httpx.HTTPError) as error:
        first = str(error).splitlines()[0] if str(error) else repr(error)
        server = os.environ.get("PREFECT_API_URL")
        raise Broken(f"Prefect failed: {first}", f"is the server at `{server}` up?") from error
    click.echo(proposals_text(ended.proposals), err=True)
    write(json_file, ended)
    check_answered(ended.proposals)
    if ended.experiment is None:
        return "REJECTED"
    click.echo(verdict_text(ended.experiment))
    verdict = ended.experiment.verdict
    return verdict.outcome.value if verdict else "BROKEN"


def check_answered(proposals: Proposals) -> None:
    """Raises `BadInput` where the endpoint turned us down and `Broken` where it did not answer, unless some were accepted."""
    if proposals.accepted:
        return
    if proposals.ended is Ended.TURNED_DOWN:
        hint = "check ANTHROPIC_API_KEY, INFRA_AGENT_MODEL, and that `prompt_tokens` fits the model's context"
        raise BadInput(f"`{proposals.model}` turned the request down: {proposals.says}", hint)
    if proposals.ended is Ended.UNAVAILABLE:
        raise Broken(f"`{proposals.model}` did not answer: {proposals.says}", "is ANTHROPIC_BASE_URL up? Run it again")
