"""`infra-agent stack`: look at a serving stack, and read one from a recipe. What runs: stack_running.py.

Only click is imported here, as in cli.py: everything heavy is imported by the command that needs it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.result_file import check_writable, write_whole
from serving.errors import BadInput

if TYPE_CHECKING:
    from serving.faults import Fault

JSON = click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the faults.")


@click.group()
def stack() -> None:
    """Look at a serving stack before anything starts, start it, look at it again, and end it."""


@stack.command("validate")
@click.argument("file", type=click.Path(path_type=Path))
@JSON
def stack_validate(file: Path, json_file: Path | None) -> None:
    """Every fault of a stack FILE and what memory it needs, without a GPU. Exit status 0: clean or warnings only, 2: errors."""
    from serving.validate import faults_of_file, memory_of_file

    check_writable(json_file)
    found = faults_of_file(file)
    _write_faults(json_file, file, found)
    for fault in found:
        click.echo(shown(fault))
    for line in memory_of_file(file):
        click.echo(line)
    click.echo(f"{file}: {counted(found)}")
    sys.exit(2 if any(fault.severity == "error" for fault in found) else 0)


@stack.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--variant", metavar="NAME", help="Such as `override_x` or `zip_override_x[0]`; default: the first.")
@click.option("--out", "out_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the stack there.")
@JSON
def stack_import(file: Path, variant: str | None, out_file: Path | None, json_file: Path | None) -> None:
    """The stack of a srt-slurm recipe FILE, as YAML. What a stack cannot express is kept under `unmapped`."""
    from serving.documents import read_mapping
    from serving.recipe import as_yaml, imported
    from serving.validate import faults_of

    check_writable(json_file)
    made = imported(read_mapping(file), variant)
    text = as_yaml(made.spec, file.name)
    if out_file is not None:
        if out_file.exists():
            raise BadInput(f"`{out_file}` exists", "name a new file")
        write_whole(out_file, text)
    else:
        click.echo(text, nl=False)
    told = {note.field for note in made.notes}
    found = [*made.notes, *(fault for fault in faults_of(made.spec) if fault.field not in (*told, "unmapped"))]
    _write_faults(json_file, file, found)
    for fault in found:
        click.echo(shown(fault), err=True)
    click.echo(f"{file}: {counted(found)}", err=True)


def shown(fault: "Fault") -> str:
    return f"{fault.severity}: `{fault.field}`: {fault.message}\n  hint: {fault.hint}"


def counted(found: Sequence["Fault"]) -> str:
    errors = sum(fault.severity == "error" for fault in found)
    warnings = len(found) - errors
    said = [
        f"{count} {name}{'' if count == 1 else 's'}"
        for count, name in ((errors, "error"), (warnings, "warning"))
        if count
    ]
    return ", ".join(said) or "clean"


def _write_faults(json_file: Path | None, file: Path, found: Sequence["Fault"]) -> None:
    import json

    if json_file is not None:
        write_whole(
            json_file, json.dumps({"file": str(file), "faults": [fault.model_dump() for fault in found]}, indent=1)
        )
