"""The command `infra-agent`. Results go to stdout, progress and errors to stderr; the exit status is the outcome.

Only click is imported here: everything heavy is imported by the command that needs it, so `--help` answers at once.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

import click

from flows.stack_command import stack
from flows.stack_running import COMMANDS as STACK_COMMANDS
from serving.errors import BadInput, Broken, InfraAgentError

EXIT = {"PASSED": 0, "REJECTED": 1, "REFUSED": 1, "INCONCLUSIVE": 3, "BROKEN": 4}
BAD_INPUT, BROKEN = 2, 4
RUNGS = ["static", "numerics", "microbench", "overlap", "engine", "service"]
LEDGER = click.option(
    "--ledger", "ledger_url", metavar="URL", help="Where records are kept (default: INFRA_AGENT_LEDGER)."
)
JSON = click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the record.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Improve an LLM serving stack one hypothesis at a time.

    \b
    Exit status: 0 passed, 1 rejected or refused, 2 bad input or usage, 3 inconclusive, 4 broken.
    """


@cli.command()
@click.argument("hypothesis", type=click.Path(path_type=Path), required=False)
@click.option(
    "--propose", "target", metavar="TARGET", help="Ask a model about TARGET and run its best accepted proposal."
)
@click.option("--plan", "only_plan", is_flag=True, help="Print the rungs and the reasons; run nothing.")
@click.option("--upto", type=click.Choice(RUNGS), metavar="RUNG", help="Visit no dearer rung than this one.")
@click.option("--budget-s", type=click.FloatRange(min=0, min_open=True), help="Start no rung after so many seconds.")
@JSON
@LEDGER
def run(
    hypothesis: Path | None,
    target: str | None,
    only_plan: bool,
    upto: str | None,
    budget_s: float | None,
    json_file: Path | None,
    ledger_url: str | None,
) -> None:
    """Take one HYPOTHESIS (a YAML file) through the rungs that answer its question."""
    if (hypothesis is None) == (target is None):
        raise BadInput(
            "give either a hypothesis file or `--propose TARGET`", "`infra-agent run --help` shows the usage"
        )
    if target is not None:
        from flows.propose_command import run_proposed

        sys.exit(EXIT.get(run_proposed(target, only_plan, upto, budget_s, json_file, ledger_url) or "", 0))
    from flows.commands import run_hypothesis

    assert hypothesis is not None
    sys.exit(EXIT.get(run_hypothesis(hypothesis, only_plan, upto, budget_s, json_file, ledger_url) or "", 0))


@cli.command()
@click.argument("target")
@click.option("--n", default=3, type=click.IntRange(1, 20), show_default=True, help="How many to ask for.")
@click.option(
    "--write", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Write accepted ones as hypothesis files."
)
@JSON
@LEDGER
def propose(target: str, n: int, folder: Path | None, json_file: Path | None, ledger_url: str | None) -> None:
    """Ask a model for hypotheses about TARGET: a kernel problem, such as kernels/kda_decode, or STACK.yaml@SCENARIO.yaml.

    Nothing is run. Which model: ANTHROPIC_BASE_URL, INFRA_AGENT_MODEL and ANTHROPIC_API_KEY; its caps: infra/model.yaml.
    """
    from flows.propose_command import propose_target

    sys.exit(EXIT[propose_target(target, n, json_file, folder, ledger_url)])


@cli.command()
@click.argument("rung", type=click.Choice(RUNGS), metavar="RUNG")
@click.argument("target", type=click.Path(path_type=Path))
@JSON
def check(rung: str, target: Path, json_file: Path | None) -> None:
    """Run one RUNG alone on a TARGET, such as `check static kernels/kda_decode/incumbent.py`."""
    from flows.commands import check_target

    sys.exit(EXIT[check_target(rung, target, json_file)])


@cli.group()
def ledger() -> None:
    """Look at what was recorded."""


@ledger.command("list")
@click.option(
    "--criteria", type=click.Path(path_type=Path), metavar="FILE", help="Which verdicts would change under it."
)
@LEDGER
def ledger_list(criteria: Path | None, ledger_url: str | None) -> None:
    """One line per attempt, oldest first, then what was refused before a build; damaged objects are named."""
    from flows.commands import list_ledger

    list_ledger(ledger_url, criteria)


@ledger.command("show")
@click.argument("id_", metavar="ID")
@click.option("--brief", "in_brief", is_flag=True, help="The bounded text that a model reads.")
@JSON
@LEDGER
def ledger_show(id_: str, in_brief: bool, json_file: Path | None, ledger_url: str | None) -> None:
    """The latest attempt at the hypothesis with this ID (a prefix is enough)."""
    from flows.commands import show_experiment

    show_experiment(id_, in_brief, json_file, ledger_url)


@ledger.command("stats")
@LEDGER
def ledger_stats(ledger_url: str | None) -> None:
    """Counts by outcome and the time spent, failed attempts included."""
    from flows.commands import ledger_statistics

    ledger_statistics(ledger_url)


@cli.command()
@click.argument("id_", metavar="ID")
@click.option(
    "--criteria", type=click.Path(path_type=Path), metavar="FILE", help="Other criteria than the target's own."
)
@JSON
@LEDGER
def judge(id_: str, criteria: Path | None, json_file: Path | None, ledger_url: str | None) -> None:
    """Judge the latest attempt with this ID again, from its stored evidence. Runs and records nothing."""
    from flows.commands import judge_again

    sys.exit(EXIT[judge_again(id_, criteria, json_file, ledger_url)])


@cli.command()
@click.argument("record", required=False)
def schema(record: str | None) -> None:
    """JSON Schema of a RECORD or of a file that people write; without a name, the list of names."""
    from flows.commands import print_schema

    print_schema(record)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@JSON
@LEDGER
def campaign(file: Path, json_file: Path | None, ledger_url: str | None) -> None:
    """Try the hypotheses of a campaign FILE that the ledger has not decided yet, until a budget ends."""
    from flows.campaign_command import run_campaign_file

    sys.exit(EXIT[run_campaign_file(file, json_file, ledger_url)])


@cli.group()
def infra() -> None:
    """What a Prefect server needs before workers can take stages."""


@infra.command("apply")
def infra_apply() -> None:
    """Create or update pools, queues, limits and automations; print what changes."""
    from flows.infra_command import apply_infra

    for change in apply_infra():
        click.echo(change)


@cli.command()
def doctor() -> None:
    """What this machine can run, and what is missing for the rest."""
    from flows.doctor import diagnose

    click.echo(diagnose())


@cli.command()
@click.option("--quick", is_flag=True, help="A few of each kind.")
@JSON
def selfcheck(quick: bool, json_file: Path | None) -> None:
    """Judge candidates and experiments whose fate is known: is the evaluator itself sound? Exit status 1 if not."""
    from flows.selfcheck import check_self

    sys.exit(check_self(quick, json_file))


@cli.group()
def export() -> None:
    """Write what other tools read."""


@export.command("flashinfer-trace")
@click.argument("problem")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
def export_flashinfer_trace(problem: str, folder: Path) -> None:
    """The kernel PROBLEM as a new folder DIR that FlashInfer-Bench loads."""
    from flows.export import export_trace

    export_trace(problem, folder)


for _command in STACK_COMMANDS:
    stack.add_command(_command)
cli.add_command(stack)

# The rest of the contract: named, so that people see what is coming, and honest about not being there.
PLANNED = {
    "timeline": "summarize and compare timelines",
    "promote": "put a winner into service",
    "rollback": "take it out again",
    "report": "one page for a campaign",
}


def _planned(name: str, what: str) -> click.Command:
    @click.command(name, help=f"{what[:1].upper()}{what[1:]} (not implemented yet).",
                   context_settings={"ignore_unknown_options": True})  # fmt: skip
    @click.argument("arguments", nargs=-1)
    def refuse(arguments: tuple[str, ...]) -> None:
        raise BadInput(f"`{name}` is not implemented yet", "`infra-agent --help` lists what is")

    return refuse


for _name, _what in PLANNED.items():
    cli.add_command(_planned(_name, _what))


def _terminate(signum: int, frame: FrameType | None) -> None:
    """SIGTERM ends a run like Ctrl-C does: stacks are torn down and the ledger says so."""
    raise KeyboardInterrupt


def main() -> None:
    """Entry point of the command."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _fail("interrupted", "what was running has been torn down; finished stages are in the ledger", BROKEN)
    except click.ClickException as error:
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "infra-agent"
        _fail(_lower(error.format_message()), f"`{command} --help` shows the usage", BAD_INPUT)
    except InfraAgentError as error:
        _fail(error.message, error.hint, BROKEN if isinstance(error, Broken) else BAD_INPUT)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("INFRA_AGENT_DEBUG"):
            raise
        hint = "this is a defect of infra-agent; INFRA_AGENT_DEBUG=1 shows where it happened"
        _fail(f"unexpected fault: {type(error).__name__}: {error}", hint, BROKEN)


def _lower(message: str) -> str:
    """Our messages start in lower case and quote values with backticks."""
    return message[:1].lower() + message[1:].rstrip(".").replace("'", "`")


def _fail(message: str, hint: str, status: int) -> None:
    shown = f"error: {message}\nhint: {hint}".encode("utf-8", "backslashreplace").decode()
    click.echo(shown, err=True)
    sys.exit(status)
