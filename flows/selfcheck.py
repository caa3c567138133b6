"""What `infra-agent selfcheck` does. Exit status 0 if everything ended as it should, else 1."""

from pathlib import Path

import click

from flows import local
from flows.commands import write
from flows.result_file import check_writable
from tasks.selfcheck import run_selfcheck, summary


def check_self(quick: bool, json_file: Path | None) -> int:
    """Judge candidates and experiments whose fate is known; print the totals. Raises `BadInput` and `Broken`."""
    check_writable(json_file)
    local.show_progress()
    report = run_selfcheck(quick, say=lambda line: click.echo(line, err=True))
    click.echo(summary(report))
    write(json_file, report)
    return 0 if report.sound else 1
