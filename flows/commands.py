"""What the commands do, one function each. Returns the outcome where a command has one."""

import difflib
import json
import math
import os
from pathlib import Path

import click
import httpx

from flows import local
from flows.result_file import check_writable, write_whole
from serving.errors import BadInput, Broken
from serving.home import home
from tasks.block_tables import block_tables
from tasks.brief import brief
from tasks.challenge import challenge
from tasks.check import check
from tasks.history import attempts, latest, refusals
from tasks.hypothesis_file import load_hypothesis
from tasks.ledger import Ledger, default_url
from tasks.opening import new_experiment, refuse
from tasks.past import past_of
from tasks.records import Experiment, Record, Rung
from tasks.rejudge import fits, load_any_criteria, rejudge, rejudge_all, rules_under
from tasks.report import change, figure, place_of, plan_text, refusal_line, refusal_text, verdict_text
from tasks.rules import rules_of
from tasks.schemas import schemas
from tasks.service_arms import check_edit
from tasks.stats import statistics_text


def run_hypothesis(
    path: Path,
    only_plan: bool,
    upto: str | None,
    budget_s: float | None,
    json_file: Path | None,
    ledger_url: str | None,
) -> str | None:
    """Plan, and unless `only_plan`, challenge and run. Raises `BadInput` before anything is recorded."""
    if budget_s is not None and not math.isfinite(budget_s):
        raise BadInput(f"`{budget_s}` is no budget", "give seconds, such as --budget-s 600")
    hypothesis = load_hypothesis(path)
    check_writable(json_file)
    url = ledger_url or default_url()
    refusal = None if only_plan else refuse(hypothesis, url)
    if refusal is not None:
        click.echo(refusal_text(refusal))
        write(json_file, refusal)
        return "REFUSED"
    experiment = new_experiment(hypothesis, url, Rung(upto) if upto else None, budget_s)
    plan = experiment.plan
    check_edit(hypothesis)
    if only_plan:
        click.echo(plan_text(plan))
        refusal = challenge(hypothesis, past_of(Ledger(url)))
        if refusal is not None:
            click.echo(f"it would be refused: {refusal.reason}: {refusal.says}\nhint: {refusal.hint}", err=True)
        write(json_file, plan)
        return None
    click.echo(plan_text(plan), err=True)
    Ledger(url).check_writable()
    ended = _run_flow(experiment, url)
    click.echo(verdict_text(ended))
    click.echo(f"ledger: {url}\nshow: infra-agent ledger show {hypothesis.id[:12]}   Prefect UI: make ui", err=True)
    write(json_file, ended)
    if ended.refusal is not None:
        return "REFUSED"
    if ended.verdict is None:
        raise Broken("the flow ended without a verdict", "see the log above; this is a defect of infra-agent")
    return ended.verdict.outcome.value


def _run_flow(experiment: Experiment, ledger_url: str) -> Experiment:
    """Run the flow on the embedded server (or the one that PREFECT_API_URL names). Raises `Broken`."""
    local.show_progress()
    if not os.environ.get("PREFECT_API_URL"):
        click.echo("starting the embedded Prefect server (10-30 s)", err=True)
    local.start_prefect()
    from flows.experiment import run_experiment

    try:
        ended: Experiment = run_experiment(experiment, ledger_url)
    except (RuntimeError, OSError, httpx.HTTPError) as error:  # the API is unreachable, or was lost on the way
        stored = [
            e for e in attempts(Ledger(ledger_url).read(experiment.hypothesis_id)) if e.attempt == experiment.attempt
        ]
        if stored and stored[-1].verdict:  # the run had ended: only the report to Prefect is lost
            click.echo(
                f"warning: Prefect was lost at the end ({type(error).__name__}); the verdict is in the ledger", err=True
            )
            return stored[-1]
        first = str(error).splitlines()[0] if str(error) else repr(error)
        raise Broken(
            f"Prefect failed: {first}", f"is the server at `{os.environ.get('PREFECT_API_URL')}` up?"
        ) from error
    return ended


def check_target(rung: str, target: Path, json_file: Path | None) -> str:
    """One rung alone. Raises `BadInput` for a target that the rung cannot look at."""
    check_writable(json_file)
    local.show_progress()
    result = check(Rung(rung), target)
    click.echo(f"{result.outcome}  {result.rung} of {result.target}\n  reason: {result.reason}")
    place = place_of(result.evidence)
    if place is not None:
        click.echo(f"  measured on: {place}")
    for finding in result.findings:
        seen = figure(finding.candidate, finding.unit) if finding.incumbent is None else change(finding)
        click.echo(f"  {finding.locus.name}: {finding.observable} {seen}; {finding.implies}")
    if place is None and result.evidence.blocks:
        click.echo(f"\n{block_tables(result.evidence.blocks)}")
    for file in result.evidence.files:
        click.echo(f"in detail: {home() / file.path}", err=True)
    write(json_file, result)
    return result.outcome.value


def list_ledger(ledger_url: str | None, criteria: Path | None = None) -> None:
    """Print attempts, refusals and damaged objects, a line each; with criteria, the verdicts that would change."""
    contents = Ledger(ledger_url or default_url()).read()
    found = attempts(contents)
    if criteria is not None:
        rejudged = rejudge_all(found, load_any_criteria(criteria))
        for one in (one for one in rejudged if one.changes):
            was = one.experiment.verdict.outcome if one.experiment.verdict else "no verdict"
            click.echo(f"{one.experiment.hypothesis_id[:12]}  {one.experiment.attempt}  {was} -> {one.verdict.outcome}")
            click.echo(f"    {one.verdict.reason}")
        click.echo(
            f"{sum(one.changes for one in rejudged)} of {len(rejudged)} verdicts would change under `{criteria}`"
        )
    else:
        for experiment in found:
            outcome = experiment.verdict.outcome if experiment.verdict else "no verdict"
            asked = experiment.hypothesis
            click.echo(f"{asked.id[:12]}  {experiment.attempt}  {outcome:<12}  {asked.question:<18}  {asked.title}")
        for refusal in refusals(contents):
            click.echo(refusal_line(refusal))
    for damage in contents.damaged:
        click.echo(f"damaged: `{damage.path}`: {damage.reason}", err=True)


def judge_again(prefix: str, criteria: Path | None, json_file: Path | None, ledger_url: str | None) -> str:
    """Judge the latest attempt from its stored evidence; nothing runs and nothing is recorded."""
    check_writable(json_file)
    experiment = latest(Ledger(ledger_url or default_url()), prefix)
    other = load_any_criteria(criteria) if criteria else None
    if other is not None and not fits(experiment, other):
        raise BadInput(
            f"`{criteria}` does not judge experiments of this kind", "a scenario judges stacks, criteria.yaml kernels"
        )
    verdict = rejudge(experiment, rules_of(experiment) if other is None else rules_under(experiment, other))
    if verdict is None:
        raise BadInput(
            f"the experiment `{prefix}` has too little evidence to judge", "it ended between two stages; run it again"
        )
    ended = experiment.with_record(verdict)
    click.echo(verdict_text(ended))
    was = experiment.verdict.outcome if experiment.verdict else "no verdict"
    click.echo(f"stored: {was}, judged again: {verdict.outcome}", err=True)
    write(json_file, verdict)
    return verdict.outcome.value


def show_experiment(prefix: str, in_brief: bool, json_file: Path | None, ledger_url: str | None) -> None:
    """Print the latest attempt, or why there is none. Raises `BadInput` for an unknown or ambiguous id."""
    check_writable(json_file)
    book = Ledger(ledger_url or default_url())
    refused = refusals(book.read(prefix)) if prefix else []
    if refused and not attempts(book.read(prefix)) and len({refusal.hypothesis.id for refusal in refused}) == 1:
        click.echo(refusal_text(refused[-1]))
        write(json_file, refused[-1])
        return
    experiment = latest(book, prefix)
    if in_brief:
        click.echo(brief(experiment))
        write(json_file, experiment)
        return
    click.echo(verdict_text(experiment))
    for other in attempts(book.read(experiment.hypothesis_id))[:-1]:
        click.echo(f"  earlier attempt: {other.attempt} {other.verdict.outcome if other.verdict else 'no verdict'}")
    for refusal in refusals(book.read(experiment.hypothesis_id)):
        click.echo(f"  refused when asked again: {refusal.reason}: {refusal.says}")
    click.echo(plan_text(experiment.plan))
    for evidence in experiment.evidence:
        click.echo(
            f"  {evidence.rung}: {len(evidence.blocks)} blocks, {evidence.wall_s:.1f} s, {len(evidence.files)} files"
        )
    write(json_file, experiment)


def ledger_statistics(ledger_url: str | None) -> None:
    """Print counts and times."""
    click.echo(statistics_text(Ledger(ledger_url or default_url()).read()))


def print_schema(name: str | None) -> None:
    """Print one JSON Schema, or the names. Raises `BadInput` for an unknown name."""
    known = schemas()
    if name is None:
        click.echo("\n".join(known))
    elif name not in known:
        near = difflib.get_close_matches(name, known)
        meant = f"did you mean {' or '.join(f'`{one}`' for one in near)}? " if near else ""
        raise BadInput(f"no record or file is called `{name}`", f"{meant}`infra-agent schema` lists the names")
    else:
        click.echo(json.dumps(known[name].model_json_schema(mode="serialization"), indent=2))


def write(json_file: Path | None, record: Record) -> None:
    """Nothing without a file. Raises `BadInput` where it cannot be written."""
    if json_file is not None:
        write_whole(json_file, record.model_dump_json(indent=2) + "\n")
