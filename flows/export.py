"""What `infra-agent export` does."""

from pathlib import Path

import click

from tasks.flashinfer_trace import export
from tasks.folder import check_target, write_folder
from tasks.problem import load_problem


def export_trace(name: str, folder: Path) -> None:
    """Print how much was written, and on stderr what the format cannot express. Raises `BadInput`, `Broken`."""
    problem = load_problem(name)
    check_target(folder)
    found = export(problem)
    write_folder(found.files, folder)
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    counts = {kind: sum(path.startswith(f"{kind}/") for path in found.files) for kind in ("definitions", "solutions")}
    workloads = sum(x.count(b"\n") for path, x in found.files.items() if path.startswith("workloads/"))
    size = sum(map(len, found.files.values())) / 1e6
    click.echo(
        f"{folder}: {counts['definitions']} definitions, {workloads} workloads, {counts['solutions']} solutions, {size:.1f} MB"
    )
